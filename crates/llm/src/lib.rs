//! Model backends behind core's Model port: one OpenAI-compatible client, and the offline planner.
