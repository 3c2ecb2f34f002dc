-- A topic as a table in Spark SQL. ${server} and ${topic} are variables of the session:
--   spark.conf.set("server", "http://127.0.0.1:8080"); spark.conf.set("topic", "shop/orders")
--   for statement in open("examples/spark/sql.sql").read().split(";"): spark.sql(statement).show()

-- The view is planned by its first query: create it again to see what is appended later.
CREATE OR REPLACE TEMPORARY VIEW messages USING fencelog
OPTIONS (server '${server}', topic '${topic}', includeHeaders 'false');

-- The same with text instead of bytes.
CREATE OR REPLACE TEMPORARY VIEW lines AS
SELECT partition, offset, publish_time, CAST(key AS STRING) AS key, CAST(value AS STRING) AS value
FROM messages;

-- How much there is, and from when.
SELECT partition, count(*) AS messages, min(publish_time) AS since, max(offset) AS last_offset
FROM lines GROUP BY partition ORDER BY partition;

-- The most frequent words.
SELECT word, count(*) AS times
FROM (SELECT explode(split(value, ' ')) AS word FROM lines)
WHERE word <> '' GROUP BY word ORDER BY times DESC, word LIMIT 10
