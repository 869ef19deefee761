-- unbanned.lua: the first member of an order that one host has not banned. In front of the scripts that need it, behind clock.lua.
--
-- A banned member is passed over by that host's requests only, so it keeps its place for all others. Where it gets no others, it and
-- its like gather in front, and passing all of them each time would cost as many steps as there are. So it is remembered how
-- far they reach: from the front up to the `floor`, a member, all were banned when they were passed. A request looks at a few in
-- front, goes on behind the floor, and looks at a few more in between, each at others (the `scout`): that finds who has come there
-- since (joined, returned, had its ban lifted or outlived), within as many requests as there are such handfuls.
-- `place`, a hash, is gone a minute after the last request: score, member of the floor; scout, a rank; since, when the floor left
-- the front; none, until when nobody is looked for since all were banned.

-- So many are looked at in front and behind the floor, at first; more in front while there is no floor, and of those in between;
-- at once when nobody was found behind the floor; and in one call at most.
local FEW, FRONT, PAGE, MOST = 16, 64, 256, 1024

-- The member; or nothing, and whether it is to be looked on with another call. Tries none of `tried`, a set of that size.
local function first_unbanned(order, bans, place, tried, size)
  local now = now_ms()
  -- The first one in a range of ranks that may be chosen; the range; how many at its front are banned.
  local function look(from, to)
    local page = redis.call('ZRANGE', order, from, to)
    local till = #page > 0 and redis.call('ZMSCORE', bans, unpack(page))
    local held = #page
    for i = 1, #page do
      if not (till[i] and tonumber(till[i]) > now) then
        held = math.min(held, i - 1)
        if not tried[page[i]] then
          return page[i], page, held
        end
      end
    end
    return nil, page, held
  end

  local front = FEW + size
  local member, page = look(0, front - 1)
  if member or #page < front then
    return member
  end
  local score, last, scout, since, none = unpack(redis.call('HMGET', place, 'score', 'member', 'scout', 'since', 'none'))
  if not last then
    member, page = look(front, front + FRONT - 1)
    front = front + FRONT
    if member or #page < FRONT then
      return member
    end
  end
  if none and tonumber(none) > now then
    return nil
  end
  local rank = front
  if last then
    if redis.call('ZSCORE', order, last) == score then
      rank = redis.call('ZRANK', order, last) + 1
    else
      -- It has gone on, for another host. Whoever had its score may be looked at again.
      rank = redis.call('ZCOUNT', order, '-inf', '(' .. score)
    end
    rank = math.max(rank, front)
  else
    since = now
  end
  if rank > front then
    scout = tonumber(scout) or front
    if scout < front or scout >= rank then
      scout = front
    end
    member, page = look(scout, math.min(scout + FRONT, rank) - 1)
    scout = scout + #page
  end

  local is_solid, looked, is_over = true, 0, false
  while not member and not is_over and looked < MOST do
    local held
    local wide = looked == 0 and FEW or PAGE
    member, page, held = look(rank + looked, rank + looked + wide - 1)
    if is_solid and held > 0 then
      last, score = page[held], nil
    end
    is_solid = is_solid and held == #page
    looked = looked + #page
    is_over = #page < wide
  end
  is_over = is_over and not member
  if is_over then
    last = false
  end
  score = last and (score or redis.call('ZSCORE', order, last))
  redis.call('DEL', place)
  redis.call('HSET', place, 'scout', scout or front)
  if score then
    redis.call('HSET', place, 'score', score, 'member', last, 'since', since)
  end
  local is_whole = is_over and now - tonumber(since) <= 1000
  if is_whole and size == 0 then
    redis.call('HSET', place, 'none', now + 1000)
  end
  redis.call('PEXPIRE', place, 60000)
  return member, not member and not is_whole
end

