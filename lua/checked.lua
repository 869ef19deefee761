-- checked.lua: what checks have shown; who fails one is set aside, and who passes one is back.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside
-- KEYS[3] zset  members set aside that return by themselves
-- KEYS[4] zset  candidates
-- KEYS[5] hash  how often in a row members were set aside that are back
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[9] zset  eligible members that failed their last requests
-- KEYS[10] zset  members set aside for failing, score = when to try them with a request, should nobody check
-- KEYS[11] zset  members that are checked, score = when, in ms by the clock of Redis
-- ARGV[1] every   ms between two checks of a member
-- ARGV[2] first   set aside for so many ms, doubled for each time in a row before
-- ARGV[3] longest but for no longer than this many ms
-- ARGV[4] percent of all that may be set aside for failing, 1..100
-- ARGV[5] policy  the count they return with, as for restore.lua
-- ARGV[6..]       per check five: member; "healthy", "unhealthy" or "unknown"; when it was due; reason, a sentence in UTF-8;
--                 by what part of its length a time is cut to, up to 1
-- Returns an array of three per change: member; "parked", "restored" or "spared"; the record, or ""
-- Writes  one ZADD per check, and per change one per key.  Cost  O(k log m), k checks, m members in the largest key
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 128 at once that changed nothing took 1.3 ms at the longest (0.8 at the median), 128 that
-- were all set aside 6.1 (4.0), 128 that all came back 3.8 (3.0).

local set, parked, streaks, ramping, trials, checks = KEYS[1], KEYS[2], KEYS[5], KEYS[6], KEYS[10], KEYS[11]
local every, first, longest, percent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local policy = ARGV[5]
if not (every and every >= 1 and first and longest and percent and policy) or #ARGV % 5 ~= 0 then
  return redis.error_reply('ERR checked: needs five limits, and five values per check')
end

local now = now_ms()
local function rest(member, count, reason, in_a_row, luck)
  local till = now + cooldown(first, longest, in_a_row, luck)
  return set_aside(member, count, 'unhealthy', reason, in_a_row, now, till, true)
end

for i = 6, #ARGV, 5 do
  local member, word, due, reason, luck = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], tonumber(ARGV[i + 4])
  -- In step with its first turn, so that periods do not drift.
  redis.call('ZADD', checks, 'XX', math.max(due + every, now + every - (now - due) % every), member)
  local count = redis.call('ZSCORE', set, member) or redis.call('ZSCORE', ramping, member)
  local again = redis.call('ZSCORE', trials, member)
  if count and again then
    -- It came into the set by other ways.
    bring_back(member, policy, nil, false)
  elseif count and word == 'unhealthy' then
    if may_set_aside(percent) then
      local in_a_row = (tonumber(redis.call('HGET', streaks, member)) or 0) + 1
      changed(member, 'parked', rest(member, count, reason, in_a_row, luck))
    else
      changed(member, 'spared', '')
    end
  elseif again and word ~= 'unknown' then
    local allocations, in_a_row, kind = read_record(redis.call('HGET', parked, member) or '')
    -- A cooldown is served to its end: its traffic failed, whatever checks say.
    if kind == 'unhealthy' or tonumber(again) <= now then
      if word == 'unhealthy' then
        rest(member, allocations, reason, in_a_row + 1, luck)
      else
        recover(member, policy)
      end
    end
  end
end
return changes
