-- spread.lua: take the eligible member that this host has been given least often, where each host has counts of its own.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[14] zset members that this host has banned, score = until when, in ms by the clock of Redis
-- KEYS[16] zset those that this host may be given, score = how often it has been, as in KEYS[1]
-- KEYS[17] hash how far KEYS[16] follows KEYS[1]: cursor of a round that is under way; card, size of KEYS[1] when it began; began,
--               when, in ms; built, once there was a whole one
-- KEYS[18] zset hosts that have counts of their own, score = when last asked for, in ms
-- ARGV[1] host
-- ARGV[2] most  hosts that have counts of their own; the one that was not asked for the longest loses them
-- ARGV[3] idle  ms after which a host loses them that is not asked for
-- ARGV[4..]     members this request has tried already: they are skipped
-- Returns {member}; {member, host that has lost its counts}, whose keys are to be removed; nothing when nobody is left; or
--         {"", "again"}: it is to be called again
-- Writes  +1 to both counts of the member, or +1/w of a weight; what was found out about the pool.  Cost  O(log m + k), k members
--         that left the pool, or up to 64 that are looked at to follow it, m in the set
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 1.0 ms at the longest (0.05 at the median), also for a new host and when 30,000
-- had left; 65 us of its CPU, and 140 bytes of memory for each host and member that was found.
--
-- Who leaves KEYS[1], or is banned, is found when his turn comes, and leaves KEYS[16]. Who joins is found by walking over KEYS[1],
-- 64 with each call: when its size has changed, and every ten seconds. As long as the first round is not over, there are always
-- members at 0 among those that were found, so the counts are even from the first call on. Whoever is found later starts at the lowest.

local set, bans, counts, sync, used = KEYS[1], KEYS[14], KEYS[16], KEYS[17], KEYS[18]
local host, most, idle = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not host or not most or most < 1 or not idle or idle < 1 then
  return redis.error_reply('ERR spread: needs a host, how many there may be, and for how long')
end
local PAGE, PATIENCE, EVERY = 64, 16, 10000
local now = now_ms()
local tried = {}
for i = 4, #ARGV do
  tried[ARGV[i]] = true
end

local function is_banned(till)
  return till and tonumber(till) > now
end

-- Looks at the next members of KEYS[1]; the new cursor.
local function follow(cursor, built)
  local page = redis.call('ZSCAN', set, cursor, 'COUNT', PAGE)
  local members = {}
  for i = 1, #page[2], 2 do
    members[#members + 1] = page[2][i]
  end
  if #members > 0 then
    local known, till = redis.call('ZMSCORE', counts, unpack(members)), redis.call('ZMSCORE', bans, unpack(members))
    local start = built and tonumber(redis.call('ZRANGE', counts, 0, 0, 'WITHSCORES')[2]) or 0
    local new = {}
    for i = 1, #members do
      if not known[i] and not is_banned(till[i]) then
        new[#new + 1] = placed(members[i], start)
        new[#new + 1] = members[i]
      end
    end
    if #new > 0 then
      redis.call('ZADD', counts, unpack(new))
    end
  end
  return page[1]
end

-- The first of KEYS[16] who may be chosen, and his count; whether there may be others behind those that were looked at.
local function lowest()
  for _ = 1, PATIENCE do
    local page = redis.call('ZRANGE', counts, 0, 15 + #ARGV, 'WITHSCORES')
    local members = {}
    for i = 1, #page, 2 do
      members[#members + 1] = page[i]
    end
    if #members == 0 then
      return
    end
    local there, till = redis.call('ZMSCORE', set, unpack(members)), redis.call('ZMSCORE', bans, unpack(members))
    local gone, found = {}, nil
    for i = 1, #members do
      if not there[i] or is_banned(till[i]) then
        gone[#gone + 1] = members[i]
      elseif not tried[members[i]] then
        found = i
        break
      end
    end
    if #gone > 0 then
      redis.call('ZREM', counts, unpack(gone))
    end
    if found then
      return members[found], tonumber(page[2 * found])
    end
    if #gone == 0 then
      return
    end
  end
  return nil, nil, true
end

local cursor, card, began, built = unpack(redis.call('HMGET', sync, 'cursor', 'card', 'began', 'built'))
-- What another tool has written is no cursor, nor a time.
cursor = cursor and #cursor < 16 and string.match(cursor, '^%d+$')
local size = redis.call('ZCARD', set)
if not cursor and (not built or tonumber(card) ~= size or math.abs(now - (tonumber(began) or 0)) >= EVERY) then
  cursor = '0'
  redis.call('HSET', sync, 'card', size, 'began', string.format('%.0f', now))
end
local is_following = cursor
if cursor and built then
  cursor = follow(cursor, true)
  cursor = cursor ~= '0' and cursor
end
local member, count, is_unfinished = lowest()
local steps = 0
while cursor and not is_unfinished and (not member or not built and count > 0) and steps < PATIENCE do
  cursor = follow(cursor, built)
  steps = steps + 1
  if cursor == '0' then
    cursor, built = false, '1'
  end
  member, count, is_unfinished = lowest()
end
if cursor then
  redis.call('HSET', sync, 'cursor', cursor)
elseif is_following then
  redis.call('HDEL', sync, 'cursor')
  redis.call('HSET', sync, 'built', '1')
end
redis.call('PEXPIRE', sync, idle)
redis.call('PEXPIRE', counts, idle)
redis.call('ZADD', used, now, host)
if not member then
  return (is_unfinished or cursor) and {'', 'again'} or {}
end
redis.call('ZADD', counts, counted(member, count, 1), member)
redis.call('ZADD', set, counted(member, tonumber(redis.call('ZSCORE', set, member)), 1), member)
local lost = redis.call('ZCARD', used) > most and redis.call('ZPOPMIN', used)[1]
return lost and {member, lost} or {member}
