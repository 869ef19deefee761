-- start.lua: the count a member starts from that joins the set or comes back. In front of the scripts that need it.

-- What `policy` gives in `set`: a number in digits, or nil where the set is empty or only a member's history counts.
local function start_of(policy, set)
  local rank = ({min = 0, median = math.floor((redis.call('ZCARD', set) - 1) / 2), max = -1})[policy]
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

