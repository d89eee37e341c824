-- A lease of an earlier boot is over since this boot began, or longer: then the wall clock must do.
-- A record whose counter is ahead of the clock stays, so that fencing tokens keep growing.
DELETE FROM {table}
WHERE fence < ?4
  AND CASE
          WHEN boot_id = ?1 THEN boot_until <= ?2
          ELSE lock_until <= ?3 OR ?2 >= 0
      END
