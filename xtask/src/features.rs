//! What the facade's Cargo features promise: each brings its own driver and no other, and none is on by default.

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, run, show};

/// Feature of the facade, and the driver that only it brings.
const DRIVERS: [(&str, &str); 3] = [
    ("postgres", "sqlx-postgres"),
    ("redis", "redis"),
    ("sqlite", "sqlx-sqlite"),
];

pub(crate) async fn check() -> Result<()> {
    let none: &[&str] = &[];
    hold(none, &packages("").await?)?;
    for (feature, _) in DRIVERS {
        hold(&[feature], &packages(feature).await?)?;
    }
    // The URL of a store whose feature is off: no other run has features off.
    run(&mut cargo(["test", "--quiet", "-p", "distlock", "--tests"])).await?;
    for (feature, _) in DRIVERS {
        run(&mut cargo([
            "check",
            "--quiet",
            "-p",
            "distlock",
            "--features",
            feature,
        ]))
        .await?;
    }
    Ok(())
}

/// The names of all packages that the facade needs with this feature.
async fn packages(feature: &str) -> Result<Vec<String>> {
    let mut command = cargo(["tree", "-p", "distlock", "-e", "normal", "--prefix", "none"]);
    command.args(["--format", "{p}", "--features", feature]);
    let output = command.output().await?;
    ensure!(output.status.success(), "`{}` failed", show(&command));
    let text = String::from_utf8(output.stdout).context("cargo tree prints text")?;
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    Ok(text.lines().map(name).collect())
}

fn hold(features: &[&str], packages: &[String]) -> Result<()> {
    for (feature, driver) in DRIVERS {
        let wanted = features.contains(&feature);
        let there = packages.iter().any(|package| package == driver);
        ensure!(
            there == wanted,
            "with the features {features:?} distlock {} {driver}",
            if there { "brings" } else { "lacks" }
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_too_many_or_too_few_is_found() {
        let packages = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let redis: Vec<String> = packages(&["distlock", "redis"]);
        assert!(hold(&["redis"], &redis).is_ok());
        assert!(hold(&[], &redis).is_err());
        assert!(hold(&["sqlite"], &redis).is_err());
    }
}
