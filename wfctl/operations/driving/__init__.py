"""The parts of a driver, each standing on the one before: state, following, launches, stopping, recovering."""
