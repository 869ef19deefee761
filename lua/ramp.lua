-- ramp.lua: as allocate.lua, where members may be catching up slowly: take the least-used member, n times, but give each of
-- those at most one of every m turns. In front: allocate.lua as the
-- function allocate(KEYS, ARGV), and weight.lua.
-- KEYS[1] zset   eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- KEYS[6] zset   eligible members that catch up slowly, scores as in KEYS[1]; who has caught up moves there
-- KEYS[7] zset   the same members, score = the turn at which each may be chosen next
-- KEYS[8] string turns so far, since somebody catches up
-- ARGV[1] n      integer, 1..64
-- ARGV[2] m      integer, 2 or more; where that is less than an equal share, it gets an equal one
-- ARGV[3..]      members this request has tried already (a retry, n = 1): they are skipped
-- Returns an array of members in the order chosen, empty when nobody is left
-- Writes  +1 per member returned, or +1/w; the turns.  Cost  O(n log m); as allocate.lua when nobody catches up
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 1.6 ms for 64, all of members that catch up

local set, ramping, turns, counter = KEYS[1], KEYS[6], KEYS[7], KEYS[8]
local n, m = tonumber(ARGV[1]), tonumber(ARGV[2])
if not n or not m or m < 2 or m % 1 ~= 0 then
  return redis.error_reply('ERR ramp: needs a number of members and one of turns')
end
local function least_used(count)
  return allocate({set}, {tostring(count), unpack(ARGV, 3)})
end
if redis.call('EXISTS', ramping) == 0 then
  return least_used(n)
end

local tried = {}
for i = 3, #ARGV do
  tried[ARGV[i]] = true
end
-- Of those who catch up, who may be chosen first, and when.
local function next_of_ramping()
  local first = redis.call('ZRANGE', turns, 0, #ARGV - 2, 'WITHSCORES')
  for i = 1, #first, 2 do
    if not tried[first[i]] then
      return first[i], tonumber(first[i + 1])
    end
  end
end

local turn = tonumber(redis.call('GET', counter)) or 0
local chosen = {}
while #chosen < n do
  local member, due = next_of_ramping()
  local run = n - #chosen
  if member then
    run = math.max(0, math.min(run, due - turn - 1))
  end
  local taken = run > 0 and least_used(run) or {}
  for _, one in ipairs(taken) do
    chosen[#chosen + 1] = one
  end
  turn = turn + #taken
  if not member then
    break
  end
  -- Its turn has come; or nobody else is left, and then nobody waits for it.
  if #chosen < n then
    local score = tonumber(redis.call('ZSCORE', ramping, member))
    local lowest = tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
    if not score or redis.call('ZSCORE', set, member) then
      -- Somebody else has taken it out here, or put it into the set, where it is like all others.
      redis.call('ZREM', ramping, member)
      redis.call('ZREM', turns, member)
    else
      turn = turn + 1
      chosen[#chosen + 1] = member
      score = counted(member, score, 1)
      if lowest and score >= lowest then
        redis.call('ZADD', set, score, member)
        redis.call('ZREM', ramping, member)
        redis.call('ZREM', turns, member)
      else
        redis.call('ZADD', ramping, score, member)
        local share = redis.call('ZCARD', set) + redis.call('ZCARD', ramping)
        redis.call('ZADD', turns, turn + math.min(m, share), member)
      end
    end
  end
end
if redis.call('EXISTS', ramping) == 1 then
  redis.call('SET', counter, string.format('%.0f', turn))
else
  redis.call('DEL', counter)
end
return chosen
