use distlock::{Capabilities, Error, Finding, Scope, Severity};
use serde::Serialize;

use crate::args::CheckArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::store::{Store, limited};

/// Looks for whatever keeps the store from being used, or weakens it, and prints it with what to do about it.
///
/// That the store cannot be looked at is a fault like others: it is an answer to what was asked.
pub(crate) async fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let report = Report::of(&args.admin.existing_store()?).await?;
    match args.admin.json {
        true => output::print_json(&report.json())?,
        false => output::print(&report.text())?,
    }
    Ok(report.exit(args.strict))
}

struct Report {
    address: Option<String>,
    /// `None` where the store cannot be reached.
    capabilities: Option<Capabilities>,
    found: Vec<Found>,
}

struct Found {
    severity: Severity,
    kind: &'static str,
    what: String,
    /// `None` where it is part of `what`.
    fix: Option<String>,
}

impl Report {
    async fn of(store: &Store) -> Result<Self, Failure> {
        let (capabilities, found) = match store.open().await {
            Ok(backend) => {
                let checked = limited(backend.check()).await;
                let found = match checked {
                    Ok(findings) => findings.into_iter().map(Found::from).collect(),
                    Err(error) => vec![error.into()],
                };
                (Some(backend.capabilities()), found)
            }
            Err(Failure {
                error: Some(error), ..
            }) => (None, vec![error.into()]),
            Err(failure) => return Err(failure),
        };
        Ok(Self {
            address: store.address(),
            capabilities,
            found,
        })
    }

    fn exit(&self, strict: bool) -> Exit {
        let warned = self.count(Severity::Warning) > 0;
        match self.usable() && !(strict && warned) {
            true => Exit::Done,
            false => Exit::No,
        }
    }

    fn usable(&self) -> bool {
        self.count(Severity::Fault) == 0
    }

    fn count(&self, severity: Severity) -> usize {
        let such = self.found.iter().filter(|found| found.severity == severity);
        such.count()
    }

    fn text(&self) -> String {
        let address = self.address.as_deref();
        let address = address.map_or_else(
            || "not shown, because any part of its URL may be a password".to_owned(),
            output::visible,
        );
        let head = format!("store: {address}\n{}", self.kind());
        let blocks = self.found.iter().map(Found::block);
        let all = [head].into_iter().chain(blocks).chain([self.verdict()]);
        all.collect::<Vec<_>>().join("\n")
    }

    fn kind(&self) -> String {
        self.capabilities.as_ref().map_or_else(String::new, |can| {
            let scope = match can.scope {
                Scope::Process => "this process alone",
                Scope::Machine => "the processes of one machine",
                _ => "whoever reaches it",
            };
            let fencing = if can.fencing { "with" } else { "without" };
            format!(
                "kind:  {}, for {scope}, {fencing} fencing tokens\n",
                can.backend
            )
        })
    }

    fn verdict(&self) -> String {
        let (faults, warnings) = (self.count(Severity::Fault), self.count(Severity::Warning));
        match (faults, warnings) {
            (0, 0) => "All is well.\n".to_owned(),
            (0, _) => format!("{}: locks can be had.\n", number(warnings, "warning")),
            (_, 0) => format!("{}: no lock can be had.\n", number(faults, "fault")),
            _ => format!(
                "{}, {}: no lock can be had.\n",
                number(faults, "fault"),
                number(warnings, "warning")
            ),
        }
    }

    fn json(&self) -> Json<'_> {
        Json {
            store: self.address.as_deref(),
            backend: self.capabilities.as_ref().map(|can| can.backend),
            usable: self.usable(),
            findings: self.found.iter().map(JsonFinding::from).collect(),
        }
    }
}

fn number(count: usize, word: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {word}{s}")
}

impl Found {
    fn block(&self) -> String {
        let what = format!("{}: {}\n", self.severity, output::one_line(&self.what));
        let fix = self.fix.as_deref();
        let fix = fix.map_or_else(String::new, |fix| {
            // A fix may be several statements, one on each line.
            let lines = fix.lines().map(output::one_line);
            format!("  fix: {}\n", lines.collect::<Vec<_>>().join("\n       "))
        });
        what + &fix
    }
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        Self {
            severity: finding.severity,
            kind: finding.kind.as_str(),
            what: finding.what,
            fix: Some(finding.fix),
        }
    }
}

impl From<Error> for Found {
    fn from(error: Error) -> Self {
        Self {
            severity: Severity::Fault,
            kind: error.kind().as_str(),
            what: error.to_string(),
            fix: None,
        }
    }
}

/// The answer as `--json` shows it.
#[derive(Serialize)]
struct Json<'a> {
    store: Option<&'a str>,
    backend: Option<&'static str>,
    usable: bool,
    findings: Vec<JsonFinding<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    severity: &'static str,
    kind: &'static str,
    what: &'a str,
    fix: Option<&'a str>,
}

impl<'a> From<&'a Found> for JsonFinding<'a> {
    fn from(found: &'a Found) -> Self {
        Self {
            severity: found.severity.as_str(),
            kind: found.kind,
            what: &found.what,
            fix: found.fix.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(found: Vec<Found>) -> Report {
        Report {
            address: Some("redis://h/0".to_owned()),
            capabilities: Some(Capabilities::new("redis")),
            found,
        }
    }

    #[test]
    fn each_finding_is_a_block_with_its_fix() {
        let warning = Finding::warning("it may evict locks", "set a\nset b");
        let fault = Error::new(distlock::ErrorKind::Denied, "no right");
        let report = report(vec![fault.into(), warning.into()]);
        let text = "\
store: redis://h/0
kind:  redis, for whoever reaches it, with fencing tokens

fault: no right (denied)

warning: it may evict locks
  fix: set a
       set b

1 fault, 1 warning: no lock can be had.
";
        assert_eq!(report.text(), text);
        assert_eq!(report.exit(false), Exit::No);
    }

    #[test]
    fn a_warning_leaves_a_store_usable_unless_one_is_strict() {
        let report = report(vec![Finding::warning("w", "f").into()]);
        assert_eq!(report.exit(false), Exit::Done);
        assert_eq!(report.exit(true), Exit::No);
        assert!(
            report
                .text()
                .ends_with("\n\n1 warning: locks can be had.\n")
        );
    }
}
