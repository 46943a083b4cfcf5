"""What users and we test with: a manual clock, a faulty disk, a broker in a process."""
