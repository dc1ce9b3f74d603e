mod fuzz;
mod phrases;
mod rounds;
mod world;
