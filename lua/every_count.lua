-- every_count.lua: change all counts of a pool. In front of the scripts that need it.

-- What comes of a count. It stays finite; and an infinite one, which another tool has written, stays as it is.
local MOST = 1.7976931348623157e308
local function changed(change, member, count)
  if math.abs(count) == math.huge then
    return count
  end
  return math.max(-MOST, math.min(MOST, change(member, count)))
end

-- Gives each score of a sorted set to `change`, with its member, and puts back what comes of it.
local function change_scores(key, change)
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  local batch = {}
  for i = 1, #all, 2 do
    batch[#batch + 1] = changed(change, all[i], tonumber(all[i + 1]))
    batch[#batch + 1] = all[i]
    -- unpack has a limit of 8,000 or so.
    if #batch == 4000 or i + 1 == #all then
      redis.call('ZADD', key, unpack(batch))
      batch = {}
    end
  end
  return #all / 2
end

-- The same for the records of those set aside, as far as they begin as record.lua writes them.
local function change_records(key, change)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local count, rest = string.match(all[i + 1], '^{"count":([^,"}]+)(.*)$')
    count = tonumber(count)
    if count then
      redis.call('HSET', key, all[i], '{"count":' .. string.format('%.17g', changed(change, all[i], count)) .. rest)
    end
  end
end

