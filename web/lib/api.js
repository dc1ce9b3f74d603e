// The client of the API. Errors are shown, never swallowed.

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.code = problem.code ?? "unknown";
    this.title = problem.title ?? "The request failed";
    this.detail = problem.detail ?? "";
    this.field = problem.field;
    this.retryMs = problem.retry_after_ms;
  }
}

const KEY = "annie.key";
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

export const headers = (more = {}) => (key.get() ? { authorization: `Bearer ${key.get()}`, ...more } : more);

export function queryText(query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") params.set(name, value);
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

export async function problemOf(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    problem = { detail: response.statusText };
  }
  return new ApiError(response.status, problem.error && typeof problem.error === "object" ? problem.error : problem);
}

export function client({ onUnauthenticated }) {
  async function call(method, path, { query, body, signal, more } = {}) {
    const url = `/api/v1${path}${queryText(query)}`;
    const init = { method, signal, headers: headers({ accept: "application/json", ...more }) };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers["content-type"] = "application/json";
    }
    let response;
    try {
      response = await fetch(url, init);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, { code: "unreachable", title: "Annie does not answer", detail: "The server is not reachable. Is it still running?" });
    }
    if (!response.ok) {
      const error = await problemOf(response);
      if (response.status === 401) onUnauthenticated(error);
      throw error;
    }
    return response.status === 204 ? null : response.json();
  }

  return {
    bound(signal) {
      return {
        get: (path, options = {}) => call("GET", path, { signal, ...options }),
        post: (path, body = {}, options = {}) => call("POST", path, { signal, body, ...options }),
        delete: (path, options = {}) => call("DELETE", path, { signal, ...options }),
        // Follows `next` up to `max` rows.
        async all(path, { query = {}, key: rows, max = 5_000 } = {}) {
          const found = [];
          let next;
          do {
            const page = await call("GET", path, { signal, query: { ...query, next } });
            found.push(...(page[rows] ?? []));
            next = page.next;
          } while (next && found.length < max);
          return { rows: found, more: Boolean(next) };
        },
      };
    },
  };
}
