SELECT fence FROM {table} WHERE resource = ?1
