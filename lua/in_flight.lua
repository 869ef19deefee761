-- in_flight.lua: what is in flight through members, and the order of choice that follows from it. In front of the scripts of
-- least-concurrent, which all have these keys:
-- KEYS[1] KEY            zset  eligible members, score = allocations so far
-- KEYS[2] KEY:load       zset  the same members in the order of choice
-- KEYS[3] KEY:in_flight  hash  member -> requests in flight, of members that have some, eligible or not
-- KEYS[4] KEY:gateways   zset  gateway -> until when it is believed alive, ms by the clock of Redis; 0: it is being reaped
-- KEYS[5] KEY:leases:G   hash  member -> requests in flight of gateway G, only of members that have some
-- A field of KEY:in_flight is the sum of that field over all KEY:leases:*. KEY:load follows from KEY and KEY:in_flight, and may
-- be behind where others have changed KEY (walk.lua).
-- A score in KEY:load is in flight / weight * 10^12 + the score in KEY. The latter counts up to +-4.9 * 10^11, and more as that
-- much, so that it does not look like something in flight. Up to 9,006 in flight a double tells every two counts apart, beyond
-- that coarser ones; what is in flight it tells apart up to 36 million.

local KEY, LOAD, IN_FLIGHT, GATEWAYS, LEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local UNIT, SPAN = 1e12, 4.9e11

local function load_of(member, in_flight, count)
  return in_flight / weight_of(member) * UNIT + math.max(-SPAN, math.min(SPAN, count))
end

-- How many requests the text of a field says; 0 where it is no such number.
local function number_in(field)
  local number = tonumber(field)
  return number and number > 0 and number < 2 ^ 53 and number or 0
end

-- The numbers in fields of a hash, 0 where there is none.
local function numbers(hash, fields)
  local found = redis.call('HMGET', hash, unpack(fields))
  for i = 1, #fields do
    found[i] = found[i] and number_in(found[i]) or 0
  end
  return found
end

-- Writes numbers into fields of a hash; 0 and less is no field.
local function put_numbers(hash, fields, numbers)
  local put, gone = {}, {}
  for i = 1, #fields do
    if numbers[i] > 0 then
      put[#put + 1] = fields[i]
      put[#put + 1] = numbers[i]
    else
      gone[#gone + 1] = fields[i]
    end
  end
  if #put > 0 then
    redis.call('HSET', hash, unpack(put))
  end
  if #gone > 0 then
    redis.call('HDEL', hash, unpack(gone))
  end
end

-- Puts members where they belong in KEY:load, and takes those out who are not (any more) in KEY; how many that changed.
local function place(members, in_flight)
  local counts = redis.call('ZMSCORE', KEY, unpack(members))
  local there, gone = {}, {}
  for i = 1, #members do
    if counts[i] then
      there[#there + 1] = load_of(members[i], in_flight[i], tonumber(counts[i]))
      there[#there + 1] = members[i]
    else
      gone[#gone + 1] = members[i]
    end
  end
  local changed = 0
  if #there > 0 then
    changed = redis.call('ZADD', LOAD, 'CH', unpack(there))
  end
  if #gone > 0 then
    changed = changed + redis.call('ZREM', LOAD, unpack(gone))
  end
  return changed
end

-- Whether KEY:load has as many members as KEY.
local function is_complete()
  return redis.call('ZCARD', KEY) == redis.call('ZCARD', LOAD)
end

-- Places the least used, as whoever comes new mostly is; how many that changed. A pool no larger than that then has everybody.
local function follow()
  local members = redis.call('ZRANGE', KEY, 0, 63)
  return #members > 0 and place(members, numbers(IN_FLIGHT, members)) or 0
end

-- More or less is in flight through members, eligible or not; never less than nothing.
local function add_in_flight(members, changes)
  if #members == 0 then
    return
  end
  local in_flight = numbers(IN_FLIGHT, members)
  for i = 1, #members do
    in_flight[i] = math.max(0, in_flight[i] + changes[i])
  end
  put_numbers(IN_FLIGHT, members, in_flight)
  place(members, in_flight)
end

-- Until when a gateway is believed alive; 0 when it is not registered, or being reaped.
local function lifetime_of(gateway)
  return tonumber(redis.call('ZSCORE', GATEWAYS, gateway) or 0)
end

-- Members and numbers that take turns in ARGV from `first` on.
local function pairs_from(first)
  local members, counts = {}, {}
  for i = first, #ARGV, 2 do
    members[#members + 1] = ARGV[i]
    counts[#counts + 1] = tonumber(ARGV[i + 1])
  end
  return members, counts
end

