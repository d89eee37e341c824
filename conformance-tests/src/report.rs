use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How a store did, rule by rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The store, as the suite was told.
    pub store: String,
    /// Which server it was, where [`Suite::run`](crate::Suite::run) was told how to ask it:
    /// [`Suite::server`](crate::Suite::server).
    pub server: Option<String>,
    /// Every rule there is, in order.
    pub results: Vec<RuleResult>,
}

/// How a store did with one rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleResult {
    /// The promise's number and the rule's within it: `1.3`.
    pub id: &'static str,
    /// The rule's short name: `between_processes`.
    pub name: &'static str,
    /// What the rule says, as a sentence.
    pub title: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took; zero if skipped.
    pub elapsed: Duration,
}

/// How a rule ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store keeps the rule.
    Passed,
    /// The store breaks it: how.
    Failed(String),
    /// The rule does not apply to the store: why.
    Skipped(&'static str),
}

impl Report {
    /// The ids of the rules that the store breaks.
    pub fn failed(&self) -> Vec<&'static str> {
        let results = self.results.iter();
        results
            .filter(|result| matches!(result.outcome, Outcome::Failed(_)))
            .map(|result| result.id)
            .collect()
    }

    /// How many rules were run, passed or failed. A skip does not count.
    pub fn rules_run(&self) -> usize {
        let results = self.results.iter();
        results
            .filter(|result| !matches!(result.outcome, Outcome::Skipped(_)))
            .count()
    }

    /// The reasons for skips, each with the ids of its rules.
    pub fn skips(&self) -> BTreeMap<&'static str, Vec<&'static str>> {
        let mut skips = BTreeMap::<_, Vec<_>>::new();
        for result in &self.results {
            if let Outcome::Skipped(reason) = result.outcome {
                skips.entry(reason).or_default().push(result.id);
            }
        }
        skips
    }

    /// The report as JSON, with times in milliseconds.
    pub fn to_json(&self) -> String {
        let rule = |result: &RuleResult| {
            let (outcome, text) = match &result.outcome {
                Outcome::Passed => ("passed", None),
                Outcome::Failed(how) => ("failed", Some(how.as_str())),
                Outcome::Skipped(why) => ("skipped", Some(*why)),
            };
            serde_json::json!({
                "id": result.id,
                "name": result.name,
                "title": result.title,
                "outcome": outcome,
                "text": text,
                "millis": u64::try_from(result.elapsed.as_millis()).unwrap_or(u64::MAX),
            })
        };
        let rules: Vec<_> = self.results.iter().map(rule).collect();
        format!(
            "{:#}\n",
            serde_json::json!({ "store": self.store, "server": self.server, "rules": rules })
        )
    }

    /// Writes the report to `STORE.json` in a folder, which is made if missing.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("{}.json", self.store)), self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_which_server_it_was() {
        let report = Report {
            store: "mystore".to_owned(),
            server: Some("Store 1.2".to_owned()),
            results: Vec::new(),
        };
        let json = report.to_json();
        assert!(json.contains(r#""server": "Store 1.2""#), "{json}");
    }
}
