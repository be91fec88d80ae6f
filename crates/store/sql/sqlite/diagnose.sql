-- What the file says about its own health: how it is journaled, its size, and how much of that is free.
select (select journal_mode from pragma_journal_mode),
       (select page_count from pragma_page_count) * (select page_size from pragma_page_size),
       (select freelist_count from pragma_freelist_count) * (select page_size from pragma_page_size)
