-- report.lua: what has become of requests; members that fail in a row are set aside, and those that pass a trial are back.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside
-- KEYS[3] zset  members set aside that return by themselves
-- KEYS[4] zset  candidates
-- KEYS[5] hash  how often in a row members were set aside that are back
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[9] zset  eligible members that failed their last requests, score = when last, in ms by the clock of Redis, times
--               1000, and how many in a row (at most 999); forgotten after an hour
-- KEYS[10] zset  members set aside for failing, score = when to try them, in ms by the clock of Redis
-- ARGV[1] after   set aside after so many failures in a row, 1..999; 0: never
-- ARGV[2] first   the first time for so many ms, doubled for each time in a row before
-- ARGV[3] longest but for no longer than this many ms
-- ARGV[4] percent of all that may be set aside for failing, 1..100
-- ARGV[5] policy  the count they return with, as for restore.lua
-- ARGV[6..]       per outcome five: member; "served", "failed" or of a trial "passed", "missed" or "undecided"; how many
--                 failures in a row; reason, a sentence in UTF-8; by what part of its length a cooldown is cut to, up to 1
-- Returns an array of three per change: member; "parked", "restored" or "spared" (it would have been one too many); the
-- record, or ""
-- Writes  one command per outcome, and per change one per key.  Cost  O(k log m), k outcomes, m members in the largest key
-- Redis 7.0 on a shared 2-core VM, 100,000 members, 20,000 of them set aside: 200 that served took 1.3 ms at the longest (0.7 at the median), 200 that were all set
-- aside 3.5 (2.4).

local set, parked, streaks, ramping, failures, trials = KEYS[1], KEYS[2], KEYS[5], KEYS[6], KEYS[9], KEYS[10]
local after, first, longest, percent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local policy = ARGV[5]
if not (after and first and longest and percent and policy) or #ARGV % 5 ~= 0 then
  return redis.error_reply('ERR report: needs five limits, and five values per outcome')
end

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', failures, '-inf', (now - 3600000) * 1000)
-- Nor is it an hour ahead, unless another tool wrote it.
redis.call('ZREMRANGEBYSCORE', failures, (now + 3600000) * 1000, '+inf')
local function rest(member, count, reason, in_a_row, luck)
  local till = now + cooldown(first, longest, in_a_row, luck)
  changed(member, 'parked', set_aside(member, count, 'cooldown', reason, in_a_row, now, till, true))
end

for i = 6, #ARGV, 5 do
  local member, word, n, reason, luck = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], tonumber(ARGV[i + 4])
  local count = redis.call('ZSCORE', set, member) or redis.call('ZSCORE', ramping, member)
  local due = redis.call('ZSCORE', trials, member)
  if word == 'served' then
    redis.call('ZREM', failures, member)
    redis.call('HDEL', streaks, member)
  elseif word == 'failed' and count and after > 0 then
    local before = redis.call('ZSCORE', failures, member)
    n = math.min(n + (before and tonumber(before) % 1000 or 0), 999)
    if n >= after and may_set_aside(percent) then
      local in_a_row = (tonumber(redis.call('HGET', streaks, member)) or 0) + 1
      rest(member, count, n .. ' failures in a row, the last: ' .. reason, in_a_row, luck)
    else
      redis.call('ZADD', failures, now * 1000 + n, member)
      if n >= after then
        changed(member, 'spared', '')
      end
    end
  elseif due and count then
    -- It came into the set by other ways.
    bring_back(member, policy, nil, false)
  elseif due and word == 'passed' then
    recover(member, policy)
  elseif due and word == 'missed' then
    local allocations, in_a_row = read_record(redis.call('HGET', parked, member) or '')
    rest(member, allocations, 'failed a trial: ' .. reason, in_a_row + 1, luck)
  elseif due and word == 'undecided' then
    redis.call('ZADD', trials, now + 1000, member)
  end
end
return changes
