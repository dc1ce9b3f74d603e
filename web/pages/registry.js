// The pages, in the order of the rail. One line a page; `key` follows `g`. `first` marks those of the bar on a phone, and
// `needs` names the scope without which a key sees nothing there.

export const PAGES = [
  { id: "overview", title: "Overview", group: "work", icon: "overview", key: "o", needs: "ops:read", first: true, load: () => import("./overview.js") },
  { id: "chat", title: "Chat", group: "work", icon: "chat", key: "c", first: true, load: () => import("./chat.js") },
  { id: "conversations", title: "Conversations", group: "work", icon: "conversations", key: "v", first: true, load: () => import("./conversations.js") },
  { id: "jobs", title: "Jobs", group: "work", icon: "jobs", key: "j", needs: "jobs:read", load: () => import("./jobs.js") },
  { id: "approvals", title: "Approvals", group: "work", icon: "approvals", key: "y", needs: "jobs:read", load: () => import("./approvals.js") },
  { id: "dead", title: "Dead letters", group: "work", icon: "dead", key: "d", needs: "jobs:read", load: () => import("./dead-letters.js") },
  { id: "schedules", title: "Schedules", group: "work", icon: "schedules", key: "s", needs: "jobs:read", load: () => import("./schedules.js") },
  { id: "workflows", title: "Workflows", group: "work", icon: "workflows", key: "f", needs: "jobs:read", load: () => import("./workflows.js") },
  { id: "skills", title: "Skills", group: "work", icon: "skills", key: "k", load: () => import("./skills.js") },
  { id: "memory", title: "Memory", group: "work", icon: "memory", key: "m", load: () => import("./memory.js") },
  { id: "actors", title: "Actors", group: "kernel", icon: "actors", key: "a", needs: "ops:read", first: true, load: () => import("./actors.js") },
  { id: "queue", title: "Queue", group: "kernel", icon: "queue", key: "q", needs: "ops:read", load: () => import("./queue.js") },
  { id: "backends", title: "Backends", group: "kernel", icon: "backends", key: "b", needs: "ops:read", load: () => import("./backends.js") },
  { id: "creatures", title: "Creatures", group: "kernel", icon: "creatures", key: "w", needs: "ops:read", load: () => import("./creatures.js") },
  { id: "usage", title: "Usage", group: "house", icon: "usage", key: "u", needs: "jobs:read", load: () => import("./usage.js") },
  { id: "audit", title: "Audit", group: "house", icon: "audit", key: "l", load: () => import("./audit.js") },
  { id: "settings", title: "Settings", group: "house", icon: "settings", key: "e", load: () => import("./settings.js") },
];

export const GROUPS = ["work", "kernel", "house"];
