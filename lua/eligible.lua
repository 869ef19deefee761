-- eligible.lua: who is eligible, in the set or catching up slowly. In front of the scripts that need it, behind weight.lua.

-- Counts `more` allocations of a member, 1 or more, or -1; whether it is eligible. Who has left took its count along.
local function recount(member, more)
  for _, key in ipairs({KEYS[1], KEYS[6]}) do
    local score = redis.call('ZSCORE', key, member)
    if score then
      local before = tonumber(score)
      local after = counted(member, before, more)
      -- What is given back may have gone in a rebase. A count that another tool has made negative goes on from there.
      if before >= 0 and after < 0 then
        after = 0
      end
      redis.call('ZADD', key, after, member)
      return true
    end
  end
  return false
end

