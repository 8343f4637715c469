//! The numbers and comparisons of Dickens and Thakur, on the simulated machines: see
//! docs/simulation-dickens-thakur.md.

use penstock_experiments::dickens_thakur::{Machine, Measured, Plan};
use penstock_experiments::{StudyError, Trials};
use penstock_sim::preset::Preset;

fn measured(machine: Machine, figures: &[u8]) -> Result<Measured, StudyError> {
    let preset = Preset::find(machine.preset())?;
    let plan = Plan::new(preset, figures)?.without_curves();
    plan.measure(&Trials::new(1))
}

/// Checks that all numbers are near the paper's except `far`, which the document explains, and that
/// all comparisons hold.
fn assert_as_published(machine: Machine, far: &[&str]) -> Result<(), StudyError> {
    let measured = measured(machine, &[])?;
    let off = measured.numbers.iter().filter(|number| !number.is_near);
    let off: Vec<&str> = off.map(|number| number.what).collect();
    assert_eq!(off, far, "{measured}");
    assert!(!measured.comparisons.is_empty());
    assert!(measured.comparisons.iter().all(|c| c.holds), "{measured}");
    Ok(())
}

#[test]
fn sp2() -> Result<(), StudyError> {
    assert_as_published(Machine::Sp2, &["64: Step 1 to Step 2"])
}

#[test]
fn paragon() -> Result<(), StudyError> {
    assert_as_published(Machine::Paragon, &[])
}

#[test]
fn origin() -> Result<(), StudyError> {
    assert_as_published(Machine::Origin, &[])
}

#[test]
fn exemplar() -> Result<(), StudyError> {
    let far = [
        "Step 1, 128 processors",
        "plain write overlapped, 32 processors",
        "plain write overlapped, 64 processors",
        "disk in background, 64 processors",
        "all in background, 64 processors",
    ];
    assert_as_published(Machine::Exemplar, &far)
}

#[test]
fn the_same_study_is_the_same_on_any_number_of_threads() -> Result<(), StudyError> {
    let on = |threads| {
        let plan = Plan::new(Preset::find("sp2-anl")?, &[4])?;
        let trials = Trials {
            threads,
            ..Trials::new(1)
        };
        plan.measure(&trials).map(|measured| measured.to_string())
    };
    assert_eq!(on(1)?, on(3)?);
    Ok(())
}

#[test]
fn what_is_not_in_the_paper_is_refused() -> Result<(), StudyError> {
    let refused = |preset: &str, figures: &[u8]| -> Result<String, StudyError> {
        let error = Plan::new(Preset::find(preset)?, figures).expect_err("not in the paper");
        assert!(error.is_input());
        Ok(error.to_string())
    };
    assert!(refused("tr94", &[])?.contains("none of the paper's machines"));
    assert!(refused("sp2-anl", &[8])?.contains("there is no figure 8"));
    assert!(refused("sp2-anl", &[7])?.contains("figure 7 is not of sp2-anl"));
    Ok(())
}
