//! Who may know whom in the workspace, and that every package stays publishable.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

#[derive(Clone, Deserialize)]
struct Metadata {
    workspace_root: String,
    packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    description: Option<String>,
    license: Option<String>,
    /// `None`: to any registry; empty: never.
    publish: Option<Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Deserialize)]
struct Dependency {
    name: String,
    /// `*` where the manifest names no version.
    req: String,
    /// `None` is a normal dependency.
    kind: Option<String>,
    /// Set for the workspace's own packages.
    path: Option<String>,
    /// Starts with `git+` where it is no registry's.
    source: Option<String>,
}

#[test]
fn the_workspace_keeps_the_rules() {
    assert_eq!(faults(&workspace()), Vec::<String>::new());
}

fn workspace() -> Metadata {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata failed");
    serde_json::from_slice(&output.stdout).expect("metadata has the form that cargo documents")
}

/// Every breach of the rules, one line each.
fn faults(metadata: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let folder = folder(package, &metadata.workspace_root);
        if folder != expected_folder(&package.name) {
            faults.push(format!("{} is in the folder {folder}", package.name));
        }
        faults.extend(edge_faults(package));
        faults.extend(publish_faults(package));
    }
    faults
}

fn folder(package: &Package, root: &str) -> String {
    let manifest = Path::new(&package.manifest_path);
    let folder = manifest.parent().unwrap_or(manifest);
    let folder = folder.strip_prefix(root).unwrap_or(folder);
    folder.display().to_string()
}

fn expected_folder(package: &str) -> String {
    match package.strip_prefix("distlock-") {
        Some("conformance") => "conformance-tests".to_owned(),
        Some(here @ ("bench" | "clock-shim" | "examples" | "fault-tests" | "test-servers")) => {
            here.to_owned()
        }
        Some(rest) => format!("lock-{rest}"),
        None => package.replace("distlock", "lock"),
    }
}

fn edge_faults(package: &Package) -> Vec<String> {
    own_dependencies(package)
        .filter(|dependency| !may_know(&package.name, dependency))
        .map(|dependency| match &dependency.kind {
            Some(kind) => format!("{} may not know {} ({kind})", package.name, dependency.name),
            None => format!("{} may not know {}", package.name, dependency.name),
        })
        .collect()
}

fn own_dependencies(package: &Package) -> impl Iterator<Item = &Dependency> {
    let dependencies = package.dependencies.iter();
    dependencies.filter(|dependency| dependency.path.is_some())
}

/// The rule. A package that is named nowhere here is a backend: it knows the contract only.
fn may_know(package: &str, dependency: &Dependency) -> bool {
    let known = dependency.name.as_str();
    match (package, known) {
        (_, "distlock-bench" | "distlock-examples" | "distlock-fault-tests" | "xtask") => false,
        ("distlock-bench" | "distlock-examples" | "distlock-fault-tests" | "xtask", _) => true,
        // They know servers and clocks, and nothing of locks.
        ("distlock-test-servers", _) => known == "distlock-clock-shim",
        ("distlock-clock-shim", _) | (_, "distlock-test-servers" | "distlock-clock-shim") => false,
        ("distlock-api", _) => false,
        ("distlock-cli", _) => known == "distlock",
        (_, "distlock-cli" | "distlock") => false,
        ("distlock-conformance" | "distlock-macros" | "distlock-scheduler", _) => {
            known == "distlock-api"
        }
        ("distlock", _) => known != "distlock-conformance",
        // Without a version cargo leaves it out of what it publishes.
        (_, "distlock-conformance") => {
            dependency.kind.as_deref() == Some("dev") && dependency.req == "*"
        }
        ("distlock-redlock", "distlock-redis") => true,
        _ => known == "distlock-api",
    }
}

/// What is never published.
const HERE_ONLY: [&str; 6] = [
    "distlock-bench",
    "distlock-clock-shim",
    "distlock-examples",
    "distlock-fault-tests",
    "distlock-test-servers",
    "xtask",
];

fn publish_faults(package: &Package) -> Vec<String> {
    let name = &package.name;
    let stays_here = package.publish.as_ref().is_some_and(Vec::is_empty);
    if HERE_ONLY.contains(&name.as_str()) {
        return match stays_here {
            true => Vec::new(),
            false => vec![format!("{name} must not be published")],
        };
    }
    let mut faults = Vec::new();
    if stays_here {
        faults.push(format!("{name} is not publishable"));
    }
    if package.description.is_none() {
        faults.push(format!("{name} has no description"));
    }
    if package.license.is_none() {
        faults.push(format!("{name} has no license"));
    }
    let shipped = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"));
    for dependency in shipped {
        let source = dependency.source.as_deref().unwrap_or_default();
        let from_git = source.starts_with("git+");
        if dependency.req == "*" || from_git {
            faults.push(format!("{name} names no version of {}", dependency.name));
        }
    }
    faults
}

/// The workspace as it is, with one dependency more.
fn with_edge(from: &str, to: &str, kind: Option<&str>, req: &str) -> Metadata {
    let dependency = Dependency {
        name: to.to_owned(),
        req: req.to_owned(),
        kind: kind.map(str::to_owned),
        path: Some(format!("/somewhere/{to}")),
        source: None,
    };
    changed(from, |package| package.dependencies.push(dependency))
}

/// The workspace as it is, with one package changed.
fn changed(name: &str, change: impl FnOnce(&mut Package)) -> Metadata {
    let mut metadata = workspace();
    let mut packages = metadata.packages.iter_mut();
    let package = packages.find(|package| package.name == name);
    change(package.expect("a package of the workspace"));
    metadata
}

#[test]
fn forbidden_edges_are_found() {
    let forbidden = [
        ("distlock-api", "distlock-redis"),
        ("distlock-redis", "distlock-sqlite"),
        ("distlock-redis", "distlock"),
        ("distlock-cli", "distlock-api"),
        ("distlock-cli", "distlock-redis"),
        ("distlock-conformance", "distlock"),
        ("distlock", "distlock-cli"),
        ("distlock", "distlock-conformance"),
        ("distlock", "distlock-examples"),
        ("distlock-examples", "xtask"),
        ("distlock-redis", "distlock-test-servers"),
        ("distlock-redis", "distlock-clock-shim"),
        ("distlock-conformance", "distlock-test-servers"),
        ("distlock-test-servers", "distlock-api"),
        ("distlock-clock-shim", "distlock-api"),
    ];
    for (from, to) in forbidden {
        let expected = format!("{from} may not know {to}");
        assert_eq!(faults(&with_edge(from, to, None, "^0.1.0")), [expected]);
    }
}

#[test]
fn only_the_clock_shim_may_be_unsafe() {
    for package in workspace().packages {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("it is there");
        let has_the_lints = manifest.contains("[lints]\nworkspace = true");
        assert_eq!(
            has_the_lints,
            package.name != "distlock-clock-shim",
            "{}",
            package.name
        );
    }
}

#[test]
fn a_backend_ships_without_the_conformance_tests() {
    let (from, to) = ("distlock-sqlite", "distlock-conformance");
    let none: [String; 0] = [];
    assert_eq!(faults(&with_edge(from, to, Some("dev"), "*")), none);
    assert_eq!(
        faults(&with_edge(from, to, Some("dev"), "^0.1.0")),
        ["distlock-sqlite may not know distlock-conformance (dev)"]
    );
    assert_eq!(
        faults(&with_edge(from, to, None, "^0.1.0")),
        ["distlock-sqlite may not know distlock-conformance"]
    );
}

#[test]
fn a_backend_may_not_test_with_another() {
    assert_eq!(
        faults(&with_edge(
            "distlock-sqlite",
            "distlock-redis",
            Some("dev"),
            "^0.1.0"
        )),
        ["distlock-sqlite may not know distlock-redis (dev)"]
    );
}

#[test]
fn the_folder_follows_from_the_name() {
    let moved = changed("distlock-redis", |package| {
        package.manifest_path = package.manifest_path.replace("lock-redis", "redis");
    });
    assert_eq!(faults(&moved), ["distlock-redis is in the folder redis"]);
}

#[test]
fn what_cannot_be_published_is_found() {
    let unversioned = with_edge("distlock-redis", "distlock-api", None, "*");
    assert_eq!(
        faults(&unversioned),
        ["distlock-redis names no version of distlock-api"]
    );
    let bare = changed("distlock", |package| {
        package.description = None;
        package.license = None;
        package.publish = Some(Vec::new());
    });
    assert_eq!(
        faults(&bare),
        [
            "distlock is not publishable",
            "distlock has no description",
            "distlock has no license"
        ]
    );
    let published = changed("xtask", |package| package.publish = None);
    assert_eq!(faults(&published), ["xtask must not be published"]);
}
