//! Porter's stemmer (1980) for English: "prefers", "preferred" and "preferring" are one search word. SQLite's full-text
//! index has it built in; the other stores and the comparison of memories need the same.

/// The longest word that is stemmed, in bytes; a longer one is left unchanged.
const WORD_BYTES_MAX: usize = 64;

/// Suffix pairs of step 2, applied if the part before has at least measure 1.
const STEP_2: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];

/// Suffix pairs of step 3.
const STEP_3: [(&str, &str); 7] =
    [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];

/// Suffixes that step 4 removes if the part before has at least measure 2. The longest matching suffix applies.
const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
];

/// The stem of a word in lower case.
pub(crate) fn stem(word: &str) -> String {
    if word.len() < 3 || word.len() > WORD_BYTES_MAX {
        return word.to_owned();
    }
    let mut word = word.to_owned();
    plural(&mut word);
    past_and_gerund(&mut word);
    if let Some(rest) = word.strip_suffix('y').filter(|rest| has_vowel(rest)) {
        word = format!("{rest}i");
    }
    replace(&mut word, &STEP_2);
    replace(&mut word, &STEP_3);
    take_away(&mut word);
    final_e_and_l(&mut word);
    word
}

fn plural(word: &mut String) {
    if word.ends_with("sses") || word.ends_with("ies") {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
}

fn past_and_gerund(word: &mut String) {
    if let Some(rest) = word.strip_suffix("eed") {
        if measure(rest) > 0 {
            word.pop();
        }
        return;
    }
    let Some(rest) = ["ed", "ing"].iter().find_map(|s| word.strip_suffix(s)).filter(|rest| has_vowel(rest)) else {
        return;
    };
    word.truncate(rest.len());
    if ["at", "bl", "iz"].iter().any(|s| word.ends_with(s)) {
        word.push('e');
    } else if ends_double(word) && !word.ends_with(['l', 's', 'z']) {
        word.pop();
    } else if measure(word) == 1 && ends_short(word) {
        word.push('e');
    }
}

fn replace(word: &mut String, pairs: &[(&str, &str)]) {
    let found = pairs.iter().filter(|(from, _)| word.ends_with(from)).max_by_key(|(from, _)| from.len());
    if let Some((from, to)) = found {
        let keep = word.len() - from.len();
        if measure(&word[..keep]) > 0 {
            word.truncate(keep);
            word.push_str(to);
        }
    }
}

fn take_away(word: &mut String) {
    let found = STEP_4.iter().filter(|s| word.ends_with(*s)).max_by_key(|s| s.len());
    if let Some(suffix) = found {
        let rest = &word[..word.len() - suffix.len()];
        if measure(rest) > 1 && (*suffix != "ion" || rest.ends_with(['s', 't'])) {
            word.truncate(rest.len());
        }
    }
}

fn final_e_and_l(word: &mut String) {
    if let Some(rest) = word.strip_suffix('e') {
        let measure = measure(rest);
        if measure > 1 || (measure == 1 && !ends_short(rest)) {
            word.pop();
        }
    }
    if word.ends_with("ll") && measure(&word[..word.len() - 1]) > 1 {
        word.pop();
    }
}

/// Whether each byte is a vowel; a `y` is one after a consonant.
fn vowels(word: &str) -> impl Iterator<Item = bool> + '_ {
    let mut after_consonant = false;
    word.bytes().map(move |b| {
        let vowel = matches!(b, b'a' | b'e' | b'i' | b'o' | b'u') || (b == b'y' && after_consonant);
        after_consonant = !vowel;
        vowel
    })
}

fn has_vowel(word: &str) -> bool {
    vowels(word).any(|v| v)
}

/// The measure of a word: how often a vowel is followed by a consonant.
fn measure(word: &str) -> usize {
    let mut before = false;
    let mut count = 0;
    for vowel in vowels(word) {
        count += usize::from(before && !vowel);
        before = vowel;
    }
    count
}

fn ends_double(word: &str) -> bool {
    match word.as_bytes() {
        [.., a, b] => a == b && !vowels(word).last().unwrap_or(true),
        _ => false,
    }
}

/// Whether the word ends in consonant, vowel, consonant, where the last one is not w, x or y.
fn ends_short(word: &str) -> bool {
    let kinds: Vec<bool> = vowels(word).collect();
    matches!(kinds.as_slice(), [.., false, true, false]) && !word.ends_with(['w', 'x', 'y'])
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn stem_matches_the_examples_of_the_paper() {
        for (word, wanted) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("filing", "file"),
            ("failing", "fail"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("vietnamization", "vietnam"),
            ("operator", "oper"),
            ("hopefulness", "hope"),
            ("triplicate", "triplic"),
            ("electrical", "electr"),
            ("goodness", "good"),
            ("adoption", "adopt"),
            ("replacement", "replac"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controller", "control"),
            ("roll", "roll"),
        ] {
            assert_eq!(stem(word), wanted, "{word}");
        }
    }

    #[test]
    fn stem_is_shared_by_forms_of_a_word_and_leaves_other_scripts_alone() {
        for word in ["prefers", "preferred", "preferring"] {
            assert_eq!(stem(word), "prefer");
        }
        for word in ["ю", "привет", "会议", "a", "is"] {
            assert_eq!(stem(word), word);
        }
        assert_eq!(stem(&"s".repeat(65)).len(), 65);
    }
}
