//! The profiles of Amazon's tools: `~/.aws/credentials` and `~/.aws/config`.
//!
//! A profile is a section of these files, `[name]` in the first and `[profile name]` in the second;
//! `AWS_PROFILE` names it, else it is `default`. `AWS_SHARED_CREDENTIALS_FILE` and
//! `AWS_CONFIG_FILE` are other files. What the environment says comes first, as with Amazon's
//! tools. Keys, session tokens, regions and endpoints are taken; a profile that gets its keys in
//! another way is refused.

use std::path::{Path, PathBuf};

use ini::{Ini, ParseOption};
use penstock_engine::{Error, Kind, Result};

/// The ways to get keys that are not taken: the beginnings of their properties.
const OTHER_WAYS: [&str; 5] = [
    "sso_",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
    "source_profile",
];

/// A profile.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    /// The key's id and the secret.
    pub(crate) key: Option<(String, String)>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Profile {
    /// The profile that the environment names.
    ///
    /// # Errors
    /// [`Kind::Schema`] when no file has the profile that is named, or a file cannot be read;
    /// [`Kind::Unsupported`] for a profile that has no keys, but says how to get some.
    pub(crate) fn of_environment() -> Result<Self> {
        let files = [
            file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            file("AWS_CONFIG_FILE", "config"),
        ];
        let name = variable("AWS_PROFILE");
        let texts = files.iter().flatten().map(|path| read(path));
        let texts: Vec<String> = texts.collect::<Result<_>>()?;
        Self::of_texts(&texts, name.as_deref(), has_own_keys()).map_err(|error| {
            let files = files
                .iter()
                .flatten()
                .map(|path| path.display().to_string());
            error.at(Path::new(&files.collect::<Vec<_>>().join(", ")))
        })
    }

    fn of_texts(texts: &[String], name: Option<&str>, has_own_keys: bool) -> Result<Self> {
        let doing = "reading a profile of AWS";
        let profile = name.unwrap_or("default");
        let sections = [profile.to_string(), format!("profile {profile}")];
        let mut known = Vec::new();
        for text in texts {
            let option = ParseOption {
                enabled_quote: false,
                enabled_escape: false,
                enabled_indented_mutiline_value: true, // such as `s3 =`, with properties below
                ..ParseOption::default()
            };
            let parsed = Ini::load_from_str_opt(text, option);
            let parsed = parsed.map_err(|e| Error::new(Kind::Schema, doing, e))?;
            for section in &sections {
                let found = parsed.section(Some(section.as_str())).into_iter();
                let found = found.flat_map(|properties| properties.iter());
                let named = found.map(|(key, value)| (key.to_string(), value.trim().to_string()));
                known.extend(named);
            }
        }
        if known.is_empty() && name.is_some() {
            let cause = format!("AWS_PROFILE is {profile:?}, and there is no such profile");
            return Err(Error::new(Kind::Schema, doing, cause));
        }
        let get = |wanted: &str| {
            let mut found = known.iter().filter(|(key, _)| key == wanted);
            found.next().map(|(_, value)| value.clone())
        };
        let key = get("aws_access_key_id").zip(get("aws_secret_access_key"));
        let other = known
            .iter()
            .find(|(key, _)| OTHER_WAYS.iter().any(|way| key.starts_with(way)));
        if let (None, Some((other, _)), false) = (&key, other, has_own_keys) {
            let cause = format!(
                "the profile {profile:?} gets its keys by {other}, which Penstock does not do: let \
                 `aws configure export-credentials --format env` put keys into the environment"
            );
            return Err(Error::new(Kind::Unsupported, doing, cause));
        }
        Ok(Self {
            key,
            token: get("aws_session_token"),
            region: get("region"),
            endpoint: get("endpoint_url"),
        })
    }
}

/// Whether the environment itself has keys.
pub(crate) fn has_own_keys() -> bool {
    variable("AWS_ACCESS_KEY_ID").is_some()
}

/// A variable of the environment that is not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// One of the files: where a variable says, else in the home directory.
fn file(name: &str, usual: &str) -> Option<PathBuf> {
    let named = variable(name).map(PathBuf::from);
    named.or_else(|| Some(std::env::home_dir()?.join(".aws").join(usual)))
}

/// The text of a file; none if it is missing.
fn read(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error {
            kind: Kind::Schema,
            ..Error::io(&error, "reading a profile of AWS", path)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=B=\n\
        \n[lab]\naws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n";
    const CONFIG: &str = "[default]\nregion = eu-central-2\n[profile lab]\nendpoint_url = http://lab:9000\n\
        s3 =\n    addressing_style = path\nregion = x\n[profile single]\nsso_session = lab\n";

    fn of(name: Option<&str>) -> Result<Profile> {
        Profile::of_texts(&[CREDENTIALS.into(), CONFIG.into()], name, false)
    }

    #[test]
    fn a_profile_is_of_both_files() {
        let known = of(None).unwrap();
        assert_eq!(known.key, Some(("A".into(), "B=".into())));
        assert_eq!(
            (known.token, known.region),
            (None, Some("eu-central-2".into()))
        );
        let known = of(Some("lab")).unwrap();
        assert_eq!(known.key, Some(("C".into(), "D".into())));
        assert_eq!(known.token.as_deref(), Some("E"));
        assert_eq!(known.region.as_deref(), Some("x"));
        assert_eq!(known.endpoint.as_deref(), Some("http://lab:9000"));
    }

    #[test]
    fn what_is_not_there_or_not_done_is_said() {
        let error = of(Some("nobody")).unwrap_err();
        assert_eq!(error.kind, Kind::Schema);
        assert!(error.cause.contains("\"nobody\""));
        let error = of(Some("single")).unwrap_err();
        assert_eq!(error.kind, Kind::Unsupported);
        assert!(error.cause.contains("sso_session"));
        let texts = [String::new(), CONFIG.to_string()];
        assert!(Profile::of_texts(&texts, Some("single"), true).is_ok());
        assert_eq!(
            Profile::of_texts(&[], None, false).unwrap(),
            Profile::default()
        );
    }
}
