-- nominate.lua: a member that is to be looked at. In front of the scripts that need it.

-- Notes it as a candidate, due at `now`, unless it is in any state already; says whether it did, as 1 or 0.
local function nominate(member, now)
  local is_eligible = redis.call('ZSCORE', KEYS[1], member) or redis.call('ZSCORE', KEYS[6], member)
  if is_eligible or redis.call('HEXISTS', KEYS[2], member) == 1 then
    return 0
  end
  return redis.call('ZADD', KEYS[4], 'NX', now, member)
end

