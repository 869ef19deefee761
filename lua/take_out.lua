-- take_out.lua: a member that is to be forgotten. In front of the scripts that need it.

-- Takes it out of whatever state it is in; says whether it was in any.
local function take_out(member)
  local set, parked, returns, candidates, streaks, ramping, turns = unpack(KEYS)
  local failures, trials, checks = KEYS[9], KEYS[10], KEYS[11]
  local found = redis.call('ZREM', set, member)
    + redis.call('HDEL', parked, member)
    + redis.call('ZREM', candidates, member)
    + redis.call('ZREM', ramping, member)
  redis.call('ZREM', returns, member)
  redis.call('HDEL', streaks, member)
  redis.call('ZREM', turns, member)
  redis.call('ZREM', failures, member)
  redis.call('ZREM', trials, member)
  redis.call('ZREM', checks, member)
  return found > 0
end

