-- The second number key of a to-do is the time of its reminder. The to-do that it is a part of becomes the third text key.
UPDATE documents SET text_3 = CAST(CAST(number_2 AS INTEGER) AS TEXT), number_2 = NULL
    WHERE namespace = 'tasks' AND number_2 IS NOT NULL;
