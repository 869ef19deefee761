-- changes.lua: what has followed for members, as it is returned. In front of the scripts that need it.

local changes = {}

-- Three per change: the member; "parked", "restored" or "spared"; the record, or "".
local function changed(member, what, record)
  local n = #changes
  changes[n + 1], changes[n + 2], changes[n + 3] = member, what, record
end

