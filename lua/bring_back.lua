-- bring_back.lua: one member from those set aside to the set. In front of the scripts that need it, behind start.lua and
-- record.lua.

-- Whether it was set aside, and is back. `start` is what start_of gave for `policy`; a member that has had more keeps its
-- count, unless the policy is a number. Who is in the set by other ways has that count, and only the record goes.
local function bring_back(member, policy, start, keeps_streak)
  local parked, returns, streaks, trials = KEYS[2], KEYS[3], KEYS[5], KEYS[10]
  local record = redis.call('HGET', parked, member)
  local is_back = false
  if record then
    local count, in_a_row = read_record(record)
    if start and policy ~= 'ramp' then
      local place = placed(member, start)
      if place > count or tonumber(policy) then
        count = place
      end
    end
    is_back = enter(member, count, policy, start) == 1
    redis.call('HDEL', parked, member)
    if is_back and keeps_streak and in_a_row > 0 then
      redis.call('HSET', streaks, member, string.format('%.0f', in_a_row))
    end
  end
  redis.call('ZREM', returns, member)
  redis.call('ZREM', trials, member)
  return is_back
end

