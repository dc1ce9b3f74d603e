// The pages, in the order of the rail. One line a page; `key` follows `g`. `first` marks those of the bar on a phone.

export const PAGES = [
  { id: "overview", title: "Overview", group: "work", icon: "overview", key: "o", first: true, load: () => import("./overview.js") },
  { id: "chat", title: "Chat", group: "work", icon: "chat", key: "c", first: true, load: () => import("./chat.js") },
  { id: "conversations", title: "Conversations", group: "work", icon: "conversations", key: "v", first: true, load: () => import("./conversations.js") },
  { id: "actors", title: "Actors", group: "kernel", icon: "actors", key: "a", first: true, load: () => import("./actors.js") },
  { id: "queue", title: "Queue", group: "kernel", icon: "queue", key: "q", load: () => import("./queue.js") },
];

export const GROUPS = ["work", "kernel", "house"];
