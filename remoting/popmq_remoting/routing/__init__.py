"""Where topics are: routes from the name servers, and the clocks of the brokers that they lead to."""
