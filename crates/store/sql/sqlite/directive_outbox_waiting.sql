-- What is not delivered, by topic, with the time and the problem of the oldest. ?1 topics at most
select o.topic, w.waiting, o.created_at, o.problem
  from (select topic, count(*) as waiting, min(id) as oldest from directive_outbox where delivered_at is null
         group by topic order by topic limit ?1) as w
  join directive_outbox as o on o.id = w.oldest
 order by o.topic
