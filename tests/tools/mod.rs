//! Tests of the command-line tools on the files of a run. What the tools print is in `cases`.

mod again;
mod certificate;
mod examples;
mod runs;
mod scene;
mod under_way;

use scene::check;

#[test]
fn reports_are_made_and_shown() {
    check("report.txt");
}

#[test]
fn runs_are_merged() {
    check("merge.txt");
}

#[test]
fn what_is_damaged_or_missing_is_found() {
    check("verify.txt");
}

#[test]
fn a_malicious_run_folder_harms_no_tool() {
    check("foreign.txt");
}

#[test]
fn runs_are_compared_and_gates_judge() {
    check("compare.txt");
}

#[test]
fn what_there_is_can_be_listed() {
    check("list.txt");
}

#[test]
fn suites_become_jobs_files() {
    check("suite.txt");
}

#[test]
fn memory_is_planned_before_it_is_needed() {
    check("fit.txt");
}

#[test]
fn an_evaluation_is_shown_before_it_starts() {
    check("dry_run.txt");
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
    check("pipes.txt");
}

#[test]
fn evaluations_of_tools_wait_for_no_other_node() {
    check("alone.txt");
}

#[test]
fn certificates_say_what_holds() {
    check("certificate.txt");
}

#[test]
fn the_doctor_names_what_is_missing() {
    check("doctor.txt");
}
