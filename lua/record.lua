-- record.lua: what is kept of a member that is set aside. In front of the scripts that need it.

-- Its count and how often in a row it was set aside: 0 where a record does not say, or is none of ours. Then kind, reason and
-- since when, if it says so.
local function read_record(text)
  local ok, record = pcall(cjson.decode, text)
  if not ok or type(record) ~= 'table' then
    return 0, 0, 'malformed', '', 0
  end
  local count, in_a_row = tonumber(record.count), tonumber(record.in_a_row)
  return count and count == count and count or 0, in_a_row and in_a_row >= 0 and in_a_row or 0,
    tostring(record.kind), tostring(record.reason), tonumber(record.since_ms) or 0
end

-- Numbers in all their digits: cjson would cut them to 14.
local function write_record(count, reason, since, kind, in_a_row, till)
  count = string.format('%.17g', count)
  -- JSON has no infinity.
  if not tonumber(count) or math.abs(tonumber(count)) == math.huge then
    count = '"' .. count .. '"'
  end
  local record = '{"count":' .. count .. ',"reason":' .. cjson.encode(reason)
    .. string.format(',"since_ms":%.0f,"kind":"%s","in_a_row":%.0f', since, kind, in_a_row)
  if till then
    record = record .. string.format(',"until_ms":%.0f', till)
  end
  return record .. '}'
end

