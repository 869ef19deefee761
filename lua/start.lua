-- start.lua: the count a member starts from that joins the set or comes back. In front of the scripts that need it, behind
-- weight.lua.

-- What `policy` gives in `set`: a number in digits, or nil where the set is empty or only a member's history counts.
local function start_of(policy, set)
  local rank = ({min = 0, ramp = 0, median = math.floor((redis.call('ZCARD', set) - 1) / 2), max = -1})[policy]
  if rank then
    return redis.call('ZRANGE', set, rank, rank, 'WITHSCORES')[2]
  elseif policy ~= 'keep' then
    return policy
  end
end

-- Whether that is a number at all; what was called is to blame if not.
local function is_number(start)
  local number = tonumber(start)
  return number and number == number
end

-- Lets a member in that has had `count`; 1, or 0 when it is there already. `start` is what start_of gave for `policy`: under
-- "ramp" the lowest of the set, and who is behind that is among those who catch up slowly, its first turn being the next.
local function enter(member, count, policy, start)
  local set, ramping, turns = KEYS[1], KEYS[6], KEYS[7]
  if redis.call('ZSCORE', ramping, member) then
    return 0
  end
  if policy == 'ramp' and start and tonumber(count) < tonumber(start) then
    if redis.call('ZSCORE', set, member) then
      return 0
    end
    redis.call('ZADD', turns, 0, member)
    return redis.call('ZADD', ramping, count, member)
  end
  return redis.call('ZADD', set, 'NX', count, member)
end

