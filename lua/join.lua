-- join.lua: a newcomer. In front of the scripts that need it, behind weight.lua and start.lua.

-- Mostly there are none, and then nobody is looked up.
local has_parked = redis.call('EXISTS', KEYS[2]) == 1
local has_candidates = redis.call('EXISTS', KEYS[4]) == 1

-- Lets a member into the set, where `start` has it start that start_of gave for `policy`; 1, or 0 when it is there already.
-- Who is there keeps its count, who was set aside stays so, and a candidate is one no more.
local function join(member, policy, start)
  if has_parked and redis.call('HEXISTS', KEYS[2], member) == 1 then
    return 0
  end
  local entered = enter(member, policy == 'ramp' and 0 or placed(member, start or 0), policy, start)
  if has_candidates then
    redis.call('ZREM', KEYS[4], member)
  end
  return entered
end

