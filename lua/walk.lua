-- walk.lua: compare one page of KEY and KEY:load, and mend the latter, where others have changed KEY.
-- KEYS[1..4]    see in_flight.lua
-- KEYS[5] KEY:walk  string  how far the round is that all gateways walk together: "key" or "load", the rank, ms of the last page
-- ARGV[1] page      integer, 1..1000
-- ARGV[2] pause     ms from one page to the next, whoever takes it
-- Returns "mended" or "same" after a page, "over" after the last one of a round, "wait" when it is too early
-- Writes  places in KEY:load, and KEY:walk.  Cost  O(page log m), m in the set
-- Redis 7.0 on a shared 2-core VM, 100,000 members: a page of 500 took 3.9 ms at the longest where nothing had changed (1.1 at the
-- median, 1.8 with weights), 4.3 where every count had (1.8; 2.7).
-- First all of KEY, for who is new or has another count, then KEY:load, for who is gone. From the highest rank down: who is
-- allocated moves up and everyone above him one rank down, so nobody who waits below the cursor gets past it.

local WALK, size, pause = KEYS[5], tonumber(ARGV[1]), tonumber(ARGV[2])
if not size or size < 1 or size > 1000 or not pause then
  return redis.error_reply('ERR walk: needs a number of members from 1 to 1000 and a pause')
end
local now = now_ms()
local set, rank, at = string.match(redis.call('GET', WALK) or '', '^(%a+) (%d+) (%d+)$')
if at and math.abs(now - at) < pause then
  return 'wait'
end
rank = tonumber(rank)
if not rank then
  set, rank = 'key', redis.call('ZCARD', KEY)
end

-- `rank` members are left.
local from, changed = math.max(0, rank - size), 0
local members = rank > 0 and redis.call('ZRANGE', set == 'key' and KEY or LOAD, from, rank - 1) or {}
if #members > 0 then
  changed = place(members, numbers(IN_FLIGHT, members))
end
local state = changed > 0 and 'mended' or 'same'
if from == 0 and set == 'key' then
  set, from = 'load', redis.call('ZCARD', LOAD)
elseif from == 0 then
  set, from, state = 'key', redis.call('ZCARD', KEY), 'over'
end
redis.call('SET', WALK, string.format('%s %.0f %.0f', set, from, now))
return state
