-- The greatest token that was seen, as the table could store it: one row, which is locked already.
-- resource
SELECT fence FROM {table} WHERE resource = ? FOR UPDATE
