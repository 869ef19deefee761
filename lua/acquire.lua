-- acquire.lua: choose a member for each of several requests: fewest in flight first, then least used, then in member order.
-- KEYS[1..5]    see in_flight.lua
-- ARGV[1] gateway
-- ARGV[2] most  as many in flight as a member may have, times its weight; 0: any number
-- ARGV[3] n     integer, 0..64: requests that have tried nobody yet
-- ARGV[4..]     for each further request how many members it has tried (a retry), and those: they are skipped; or -1 and a member,
--               when it has been chosen otherwise, counted there, and need not be in KEY; or -2 less how many it has tried,
--               the number of a host that has banned members, and those (with clock.lua and unbanned.lua in front)
-- KEYS[6..]     of each of these hosts two, as for choose_for.lua
-- Returns {state, answer...}, the answers in the order of the requests: "+member"; "-" nobody is left; "!" whoever is left has
--   as many in flight as he may; "~" ask again, since many stood in front who have left KEY. state: "ok"; "behind", KEY:load
--   is (walk.lua mends that); "lapsed", alone, the gateway is not registered (any more), and nothing was written
-- Writes  per member chosen one allocation more in KEY, +1 in KEY:in_flight and in KEY:leases:G, and its place in KEY:load
-- Cost    O((n + k) log m), k members tried, m in the set; while KEY and KEY:load differ in size, for 64 members more
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 1 took 0.4 ms at the longest (0.04 at the median), 64 at once 1.8 (0.7; 0.9
-- with weights), 64 retries that have tried 3 each 3.5 (1.4), 63 each 6.4 (3.2). With release.lua it costs 13 us of CPU per request
-- at 64 at once, 18 at 16, 38 for singles pipelined, 110 for a lone one; with weights of all sizes 19, 22, 41, 120.

local gateway, most, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not most or not n or n < 0 or n > 64 or n % 1 ~= 0 then
  return redis.error_reply('ERR acquire: needs a gateway, a limit, and a whole number from 0 to 64')
end
if lifetime_of(gateway) == 0 then
  return {'lapsed'}
end

local reply = {'ok'}
if not is_complete() then
  follow()
  if not is_complete() then
    reply[1] = 'behind'
  end
end

-- Members may be found in KEY:load that have left KEY: so many, and the rest is for another call.
local patience = 256

-- Chooses members of a page of KEY:load, at most `left`, in its order; up to the first who comes behind one who was chosen
-- before him. Returns how many, and why there will be no more: nothing while there may be.
local function choose(page, left)
  local members, places = {}, {}
  for i = 1, #page, 2 do
    members[#members + 1] = page[i]
    places[#places + 1] = tonumber(page[i + 1])
  end
  if #members == 0 then
    return 0, '-'
  end
  local counts = redis.call('ZMSCORE', KEY, unpack(members))
  local in_flight = numbers(IN_FLIGHT, members)
  local chosen, carried, raised, moved, gone = {}, {}, {}, {}, {}
  local bar, stop = math.huge, nil
  for i = 1, #members do
    if #chosen == left or places[i] >= bar then
      break
    elseif not counts[i] then
      gone[#gone + 1] = members[i]
    elseif most > 0 and in_flight[i] >= most * weight_of(members[i]) then
      stop = '!'
      break
    else
      local member, count, k = members[i], tonumber(counts[i]), #chosen + 1
      -- Someone else has changed this count, and perhaps others'.
      if math.abs(load_of(member, in_flight[i], count) - places[i]) > 1 then
        reply[1] = 'behind'
      end
      count = counted(member, count, 1)
      local place = load_of(member, in_flight[i] + 1, count)
      chosen[k], carried[k] = member, in_flight[i] + 1
      raised[2 * k - 1], raised[2 * k] = count, member
      moved[2 * k - 1], moved[2 * k] = place, member
      bar = math.min(bar, place)
      reply[#reply + 1] = '+' .. member
    end
  end
  if #gone > 0 then
    redis.call('ZREM', LOAD, unpack(gone))
    patience = patience - #gone
    if patience <= 0 then
      stop = '~'
    end
  end
  if #chosen > 0 then
    redis.call('ZADD', KEY, unpack(raised))
    redis.call('ZADD', LOAD, unpack(moved))
    put_numbers(IN_FLIGHT, chosen, carried)
    local leases = numbers(LEASES, chosen)
    for k = 1, #chosen do
      leases[k] = leases[k] + 1
    end
    put_numbers(LEASES, chosen, leases)
  end
  return #chosen, stop
end

-- Counts a request through a member that was chosen otherwise.
local function hold(member)
  put_numbers(LEASES, {member}, {numbers(LEASES, {member})[1] + 1})
  add_in_flight({member}, {1})
  reply[#reply + 1] = '+' .. member
end

local left = n
while left > 0 do
  local chosen, stop = choose(redis.call('ZRANGE', LOAD, 0, left - 1, 'WITHSCORES'), left)
  left = left - chosen
  if stop then
    for _ = 1, left do
      reply[#reply + 1] = stop
    end
    break
  end
end

local first = 4
while ARGV[first] do
  local k = tonumber(ARGV[first])
  local last = first + math.abs(k)
  if k < -1 then
    last = first - k - 1
    local tried, host = {}, 4 + 2 * tonumber(ARGV[first + 1])
    for i = first + 2, last do
      tried[ARGV[i]] = true
    end
    local member, is_unfinished = first_unbanned(LOAD, KEYS[host], KEYS[host + 1], tried, -k - 2)
    local chosen, stop = 0, is_unfinished and '~' or '-'
    if not member and not is_complete() then
      -- Somebody may be left who has no place yet.
      redis.call('HDEL', KEYS[host + 1], 'none')
      stop = '~'
    elseif member then
      chosen, stop = choose({member, redis.call('ZSCORE', LOAD, member)}, 1)
    end
    if chosen == 0 then
      reply[#reply + 1] = stop or '~'
    end
  elseif k < 0 then
    hold(ARGV[last])
  else
    local tried = {}
    for i = first + 1, last do
      tried[ARGV[i]] = true
    end
    local chosen, stop
    repeat
      -- One more than were tried: when all before it were, the last one was not.
      local page, other = redis.call('ZRANGE', LOAD, 0, k, 'WITHSCORES'), {}
      for i = 1, #page, 2 do
        if not tried[page[i]] then
          other[#other + 1] = page[i]
          other[#other + 1] = page[i + 1]
        end
      end
      chosen, stop = choose(other, 1)
    until chosen == 1 or stop
    if chosen == 0 then
      reply[#reply + 1] = stop
    end
  end
  first = last + 1
end
return reply
