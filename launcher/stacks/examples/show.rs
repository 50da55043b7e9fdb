//! Prints the stacks of a process: `show PID`.
use std::time::Instant;
fn main() {
    let pid: i32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let t = Instant::now();
    let captured = stacks::capture(pid);
    eprintln!("captured in {:?}", t.elapsed());
    let t = Instant::now();
    let trace = stacks::trace(&captured, &mut stacks::native::Files::default());
    eprintln!("traced in {:?}", t.elapsed());
    println!("{:#?}", trace.notes);
    for thread in &trace.threads {
        println!(
            "{} {} lock {} : {}",
            thread.tid, thread.name, thread.holds_lock, thread.doing
        );
        for frame in &thread.frames {
            println!("     {frame:?}");
        }
    }
}
