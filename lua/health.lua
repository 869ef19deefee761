-- health.lua: how many may be set aside for failing, for how long, and how they come back. In front of the scripts that need it,
-- behind bring_back.lua and changes.lua.

-- Whether one more may go: somebody is left, and of all that are eligible or set aside for failing no more than `percent` are
-- the latter. Beyond that, what fails is rather the way to them, and those that are left would have to bear everything.
local function may_set_aside(percent)
  local eligible = redis.call('ZCARD', KEYS[1]) + redis.call('ZCARD', KEYS[6])
  local failing = redis.call('ZCARD', KEYS[10])
  return eligible > 1 and (failing + 1) * 100 <= percent * (eligible + failing)
end

-- How long in ms, the `in_a_row`th time; `luck`, up to 1, spreads those that failed together.
local function cooldown(first, longest, in_a_row, luck)
  -- 2^60 is more than every limit; nothing, doubled for ever, would be no number.
  return math.floor(math.min(first * 2 ^ math.max(0, math.min(in_a_row - 1, 60)), longest) * luck)
end

-- Brings one back that has proven itself. All of one call find the set as the first of them did.
local start, has_start
local function recover(member, policy)
  if not has_start then
    start, has_start = start_of(policy, KEYS[1]), true
  end
  bring_back(member, policy, start, false)
  changed(member, 'restored', '')
end

