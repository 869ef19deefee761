-- judged.lua: what was found about candidates; who passes enters the set, and who does not is looked at again later.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[4] zset  candidates, score = when to look at them, in ms by the clock of Redis
-- KEYS[6] zset  eligible members that catch up slowly
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[12] hash verdicts: who was rejected -> {"reason", "until_ms", "in_a_row"}
-- KEYS[13] zset the same members, score = until when each verdict is kept, in ms: twice as long as it holds
-- KEYS[14] hash by: what judges at present
-- ARGV[1] by      the rules and the judge of the gateway, as for claim_candidates.lua
-- ARGV[2] first   looked at again after so many ms, doubled for each time in a row before
-- ARGV[3] longest but after no more than this many ms
-- ARGV[4] start   as for add.lua
-- ARGV[5..]       per candidate four: member; "passed", "rejected" or "unknown"; reason, a sentence in UTF-8; by what part of
--                 its length a time is cut to, up to 1
-- Returns the members that have entered
-- Writes  one or two per key and candidate.  Cost  O(k log m), k candidates given, m members in the largest key
-- Redis 7.0 on a shared 2-core VM, 100,000 candidates: 1.1 ms at the longest for 64 of them (0.9 at the median), 3.5 (3.1) for 200.

local set, candidates, verdicts, ends, judging = KEYS[1], KEYS[4], KEYS[12], KEYS[13], KEYS[14]
local by, first, longest, policy = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local start = start_of(policy, set)
if not first or first < 1 or not longest or longest < first or #ARGV % 4 ~= 0 or (start and not is_number(start)) then
  return redis.error_reply('ERR judged: needs two limits, a start as for add, and four values per candidate')
end
local now = now_ms()
-- Found by rules or a judge that count no more: nothing is known.
local is_void = redis.call('HGET', judging, 'by') ~= by
local entered = {}
for i = 5, #ARGV, 4 do
  local member, word, reason, luck = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  -- Who was removed or added by others meanwhile stays what it is.
  if redis.call('ZSCORE', candidates, member) then
    if is_void or word == 'unknown' then
      redis.call('ZADD', candidates, is_void and now or now + math.min(first, 10000), member)
    elseif word == 'passed' then
      if enter(member, policy == 'ramp' and 0 or placed(member, start or 0), policy, start) == 1 then
        entered[#entered + 1] = member
      end
      redis.call('ZREM', candidates, member)
      redis.call('HDEL', verdicts, member)
      redis.call('ZREM', ends, member)
    else
      local before = redis.call('HGET', verdicts, member) or ''
      local in_a_row = (tonumber(string.match(before, '"in_a_row":(%d+)')) or 0) + 1
      local pause = math.floor(math.min(first * 2 ^ math.min(in_a_row - 1, 60), longest) * luck)
      local verdict = '{"reason":' .. cjson.encode(reason)
        .. string.format(',"until_ms":%.0f,"in_a_row":%.0f}', now + pause, in_a_row)
      redis.call('HSET', verdicts, member, verdict)
      redis.call('ZADD', ends, now + 2 * pause, member)
      redis.call('ZADD', candidates, now + pause, member)
    end
  end
end
return entered
