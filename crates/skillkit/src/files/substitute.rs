//! Substitutes arguments in a prompt skill's body: `$ARGUMENTS`, `$ARGUMENTS[N]` and `$N`, counted from 0; `\$` is a plain
//! dollar.

/// Fills the placeholders of the body in one pass, so the content of an argument is never expanded. The arguments are
/// appended to a body without placeholders.
pub(crate) fn substitute(body: &str, arguments: &str) -> String {
    let words = words(arguments);
    let mut out = String::with_capacity(body.len() + arguments.len());
    let mut filled = false;
    let mut rest = body;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        if let Some(before) = before.strip_suffix('\\') {
            out.push_str(before);
            out.push('$');
            rest = after;
            continue;
        }
        out.push_str(before);
        match placeholder(after) {
            Some((which, len)) => {
                filled = true;
                match which {
                    None => out.push_str(arguments),
                    Some(n) => out.push_str(words.get(n).map_or("", String::as_str)),
                }
                rest = &after[len..];
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    if !filled && !arguments.trim().is_empty() {
        out.push_str(&format!("\n\nARGUMENTS: {arguments}"));
    }
    out
}

/// Parses the placeholder after a dollar: the index of its argument (`None` for all of them), and its length.
fn placeholder(text: &str) -> Option<(Option<usize>, usize)> {
    if let Some(rest) = text.strip_prefix("ARGUMENTS") {
        let index = rest.strip_prefix('[').and_then(|r| r.split_once(']')).map(|(digits, _)| digits);
        return match index.and_then(|digits| Some((digits.parse().ok()?, digits.len()))) {
            Some((n, digits)) => Some((Some(n), "ARGUMENTS[]".len() + digits)),
            None if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') => None,
            None => Some((None, "ARGUMENTS".len())),
        };
    }
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    // `$5.00` and `$5k` are sums of money, not the sixth argument.
    let rest = &text[len..];
    let is_money = rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        || rest.strip_prefix(['.', ',']).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
    let n = text[..len].parse().ok().filter(|_| !is_money)?;
    Some((Some(n), len))
}

/// Splits at white space; quotes keep words together.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if (c == '"' || c == '\'') && word.as_deref().is_none_or(str::is_empty) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::substitute;

    #[test]
    fn placeholders_insert_all_arguments_or_one_of_them() {
        let arguments = "PR 42 \"two words\" it's";
        for (body, expected) in [
            ("Review $ARGUMENTS.", "Review PR 42 \"two words\" it's."),
            ("$0/$1/$2/$3/$4", "PR/42/two words/it's/"),
            ("$ARGUMENTS[2] and $ARGUMENTS[9]!", "two words and !"),
            ("\\$0 is $0", "$0 is PR"),
        ] {
            assert_eq!(substitute(body, arguments), expected, "{body}");
        }
    }

    #[test]
    fn body_without_placeholders_gets_the_arguments_at_its_end() {
        assert_eq!(substitute("Do it.", "now"), "Do it.\n\nARGUMENTS: now");
        assert_eq!(substitute("It costs $5.00 or $5k, $x.", "now"), "It costs $5.00 or $5k, $x.\n\nARGUMENTS: now");
        assert_eq!(substitute("Do it.", " "), "Do it.");
    }

    #[test]
    fn argument_is_never_expanded_as_a_placeholder() {
        assert_eq!(substitute("$0 $1", "$1 $ARGUMENTS"), "$1 $ARGUMENTS");
    }
}
