//! A fake MCP server: a script of `/bin/sh` that uses no other program.

/// The arguments of `/bin/sh` that make it an MCP server of the revision `modern` or `legacy`; `late` is modern, and does not answer
/// the first request.
#[must_use]
pub fn arguments(revision: &str) -> Vec<String> {
    ["-c", SCRIPT, "fake-mcp-server", revision].map(str::to_owned).into()
}

/// Reads one message a line. The tools: `echo` says its text, `put` adds a line to the file `$FAKE_PUTS`, `env` says its
/// variables, `fail` reports an error, `hang` adds a line and never answers, `die` ends the server after it has added a line,
/// `flood` writes without end, `change` changes the description of `echo` and announces it. If `$FAKE_READS` is set, it also has the
/// resource `note://gate` and the prompt `greet`.
const SCRIPT: &str = r#"
about="Says a text.$FAKE_ABOUT"
can='"tools":{}'
if [ -n "$FAKE_READS" ]; then can='"tools":{},"resources":{},"prompts":{}'; fi
say() { printf '%s\n' "$1"; }
answer() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
refuse() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":$1,\"message\":\"$2\"}}"; }
text() { answer "{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
put() { if [ -n "$FAKE_PUTS" ]; then say put >> "$FAKE_PUTS"; fi; }
plain() { printf '%s' ",{\"name\":\"$1\",\"description\":\"Tool $1.\",\"inputSchema\":{\"type\":\"object\"}}"; }
list() {
    schema='{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
    echo="{\"name\":\"echo\",\"description\":\"$about\",\"inputSchema\":$schema,\"annotations\":{\"readOnlyHint\":true}}"
    rest=$(for name in put env fail hang die flood change; do plain $name; done)
    answer "{\"tools\":[$echo$rest]}"
}
call() {
    case $1 in
        *'"name":"echo"'*) said=${1#*'"text":"'}; text "${said%%'"'*}" ;;
        *'"name":"put"'*) put; text 'Put.' ;;
        *'"name":"env"'*) text "token=$TOKEN home=${HOME-none}" ;;
        *'"name":"fail"'*) answer '{"isError":true,"content":[{"type":"text","text":"no such thing"}]}' ;;
        *'"name":"hang"'*) put ;;
        *'"name":"die"'*) put; say 'I die now' >&2; exit 3 ;;
        *'"name":"flood"'*) while :; do printf '%s' 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; done ;;
        *'"name":"change"'*)
            about='Says a text, and more.'
            say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
            text 'Changed.' ;;
        *) refuse -32602 'no such tool' ;;
    esac
}
while IFS= read -r line; do
    id=${line#*'"id":'}; id=${id%%,*}
    case $line in
        *'"method":"server/discover"'*)
            if [ "$1" = late ] && [ -z "$late" ]; then
                late=yes
            elif [ "$1" != legacy ]; then
                info='{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}'
                answer "{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{$can},\"_meta\":$info}"
            else
                refuse -32601 'no such method'
            fi ;;
        *'"method":"initialize"'*)
            if [ "$1" = late ]; then refuse -32022 'serving the newest revision'; continue; fi
            info='"serverInfo":{"name":"fake","version":"1"}'
            answer "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{$can},$info}" ;;
        *'"method":"tools/list"'*) list ;;
        *'"method":"tools/call"'*) call "$line" ;;
        *'"method":"resources/list"'*)
            answer '{"resources":[{"uri":"note://gate","name":"Gate","description":"About the gate."}]}' ;;
        *'"method":"resources/templates/list"'*)
            answer '{"resourceTemplates":[{"uriTemplate":"note://{name}","name":"A note"}]}' ;;
        *'"method":"resources/read"'*'note://gate'*)
            answer '{"contents":[{"uri":"note://gate","text":"The gate squeaks."}]}' ;;
        *'"method":"resources/read"'*) refuse -32602 'no such resource' ;;
        *'"method":"prompts/list"'*)
            answer '{"prompts":[{"name":"greet","description":"Greets.","arguments":[{"name":"who","required":true}]}]}' ;;
        *'"method":"prompts/get"'*)
            said=${line#*'"who":"'}
            answer "{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"Greet ${said%%'"'*}.\"}}]}" ;;
        *'"method":"notifications/'*) ;;
        *) refuse -32601 'no such method' ;;
    esac
done
"#;
