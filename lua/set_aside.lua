-- set_aside.lua: one member to those set aside. In front of the scripts that need it, behind record.lua.

-- `till`: when it returns by itself, or with `is_trial` when a request may try it; nil: when it is restored. Returns the record.
local function set_aside(member, count, kind, reason, in_a_row, now, till, is_trial)
  local set, parked, returns, candidates, streaks, ramping, turns = unpack(KEYS)
  local failures, trials = KEYS[9], KEYS[10]
  local record = write_record(count, reason, now, kind, in_a_row, till)
  -- The hash first: an error rolls nothing back, and a lack of memory is an error at the first write only.
  redis.call('HSET', parked, member, record)
  if till and is_trial then
    redis.call('ZADD', trials, till, member)
    redis.call('ZREM', returns, member)
  else
    if till then
      redis.call('ZADD', returns, till, member)
    else
      redis.call('ZREM', returns, member)
    end
    redis.call('ZREM', trials, member)
  end
  redis.call('HDEL', streaks, member)
  redis.call('ZREM', failures, member)
  redis.call('ZREM', candidates, member)
  redis.call('ZREM', ramping, member)
  redis.call('ZREM', turns, member)
  redis.call('ZREM', set, member)
  return record
end

