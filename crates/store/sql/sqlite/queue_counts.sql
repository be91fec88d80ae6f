select queue, sum(ready), sum(delayed), sum(blocked), sum(processing), sum(failed),
       exists (select 1 from pause where scope = 'queue' and name = queue)
from lane group by queue
union all
select name, 0, 0, 0, 0, 0, 1 from pause where scope = 'queue' and name not in (select queue from lane)
order by 1
