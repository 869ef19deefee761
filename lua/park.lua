-- park.lua: set a member aside; it leaves the set and keeps its count and the reason.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside -> {"count":…,"reason":…,"since_ms":…,"kind":…,"in_a_row":…,"until_ms":…}; times are in
--               ms by the clock of Redis; no "until_ms" when it does not return by itself
-- KEYS[3] zset  members set aside that return by themselves, score = "until_ms"
-- KEYS[4] zset  candidates
-- KEYS[5] hash  how often in a row members were set aside that are back
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[9] zset  eligible members that failed their last requests
-- KEYS[10] zset  members set aside for failing: one that is set aside anew waits for no trial
-- ARGV[1]       member
-- ARGV[2] kind  "cooldown" or "unhealthy", which count in a row, "malformed", "banned" or "hand"
-- ARGV[3]       reason, a sentence in UTF-8
-- ARGV[4]       for how many ms, doubled for each time in a row before; empty: until it is restored
-- ARGV[5]       but for no longer than this many ms
-- Returns the record, or "" when there was nothing to do: only "hand" and "banned" take a candidate, or one that is set aside already
-- Writes  one command per key.  Cost  O(log m), m members in the largest key
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 0.3 ms

local set, parked, candidates, streaks, ramping = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]
local member, kind, reason, span, longest = unpack(ARGV)
local counts_in_a_row = ({cooldown = 1, unhealthy = 1, malformed = 0, banned = 0, hand = 0})[kind]
span, longest = tonumber(span), tonumber(longest)
if not counts_in_a_row or not reason or (span and not (span >= 0 and longest and longest >= span)) then
  return redis.error_reply('ERR park: needs a member, a kind, a reason and how long')
end

local count = redis.call('ZSCORE', set, member) or redis.call('ZSCORE', ramping, member)
local in_a_row = tonumber(redis.call('HGET', streaks, member)) or 0
if not count then
  if kind ~= 'hand' and kind ~= 'banned' then
    return ''
  end
  local record = redis.call('HGET', parked, member)
  if record then
    count, in_a_row = read_record(record)
  elseif redis.call('ZSCORE', candidates, member) then
    count = 0
  else
    return ''
  end
end
in_a_row = in_a_row + counts_in_a_row

local now = now_ms()
-- 2^60 is more than every limit; nothing, doubled for ever, would be no number.
local till = span and now + math.min(span * 2 ^ math.max(0, math.min(in_a_row - 1, 60)), longest)
return set_aside(member, count, kind, reason, in_a_row, now, till, false)
