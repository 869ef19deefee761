-- weight.lua: what counts mean for members with weights, as in allocate.lua. In front of the scripts that need it.

-- Of ?weight=w in the query of the last hop, w (1..1000); 1 without one.
local function weight_of(member)
  if not string.find(member, 'weight=', 1, true) then
    return 1
  end
  local query = string.match(member, '%?([^?@|/]*)$')
  local weight = query and tonumber(string.match('&' .. query .. '&', '&weight=(%d+)&'))
  return weight and weight >= 1 and weight <= 1000 and weight or 1
end

-- The score with `more` allocations more, or -1: by way of the number of allocations, which is whole, where there is a
-- weight. From 2^50 on, one more is the same number.
local function counted(member, score, more)
  local weight = weight_of(member)
  if weight == 1 then
    return score + more
  end
  local count = math.floor(score * weight + 0.5)
  return math.abs(count + math.min(more, 0)) < 2 ^ 50 and (count + more) / weight or score
end

-- The least score from `start` on that a whole number of allocations gives.
local function placed(member, start)
  local weight = weight_of(member)
  local count = math.ceil(start * weight)
  if math.abs(count) == math.huge then
    -- So far up that every score is a whole number of allocations, or infinite already.
    return tonumber(start)
  end
  -- The product of a quotient may be a little more than the whole number that it was made of.
  if (count - 1) / weight >= tonumber(start) then
    count = count - 1
  end
  return count / weight
end

